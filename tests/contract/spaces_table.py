"""Writes docs/spaces.md: trains every algorithm with every kind of observation, action and reward.

Run it with `python tests/contract/spaces_table.py`.
"""

import sys
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import probes  # noqa: F401 (registers them with Gymnasium)
from probe_spaces import ACTIONS, OBSERVATIONS, REWARDS
from toys import ALGOS as EVERY
from toys import Values, toy, train

from rlrun.config.schema import run_config
from rlrun.errors import ConfigError
from rlrun.run.assemble import build_loop

ALGOS = [algo for algo in EVERY if algo not in ("mpc", "scripted")]
PAGE = Path(__file__).parents[2] / "docs" / "spaces.md"
MASKED = "masked discrete"
KINDS = {"action": [*ACTIONS, MASKED], "observation": [*OBSERVATIONS], "reward": [*REWARDS]}

INTRODUCTION = """\
# Spaces

`python tests/contract/spaces_table.py` writes these tables: it trains every algorithm with its own network in every
space. An algorithm runs where all three tables say yes; anything else is refused in one line that says `not supported`
and why. `rlrun list algo env=CartPole` lists the algorithms that run in one environment, also one of your own.

Observations may be nested: `Tuple` and `Dict` hold any of the others, and every image in them gets its own encoder.
`mpc` and `scripted` are not in the tables: the one needs an environment whose equations are known, such as
`env=Pendulum`, the other the environment of its controller.

`Text`, `Graph`, `Sequence` and `OneOf` are not supported: they have no fixed shape. Wrap the environment so that it
returns a Box, such as an embedding of the text, and takes actions of the spaces below.

Actions may be nested too. The agent acts with one vector: first all choices, then all continuous values. If all parts
are discrete, its space is a `MultiDiscrete`; if all are Boxes, it is one `Box`; else it is a `MixedSpace`, whose
components are the parts of the `Tuple` or `Dict`. The environment, data sets, `rlrun.load(RUN).act` and exported
policies have the original tuples and dicts; an exported policy has an output `action.<name>` for each part. The column
`tuple` stands for one choice beside a Box, the column `dict` for a nested space with several choices: `algo=sac` takes
one choice, and on-policy algorithms take any number. Every component of a `MixedSpace` has an entropy coefficient and a
target of its own: `algo.entropy.target_entropy={gear: 0.5, steer: -1.0}`, a list, or one number for all; parts of a
`Tuple` are named `0`, `1`, and so on. Parts of one kind have a coefficient each if targets are given for each.

Masked: the environment returns `info["action_mask"]` from every reset and step, or an entry `action_mask` of a Dict
observation, in the form that Gymnasium's `Space.sample` takes, for the discrete parts of an action; or it has a method
`action_masks()`, as MaskablePPO takes it. A mask has 1 or True for allowed choices and 0 or False for others. Forbidden
choices have probability 0 and are never sent. A mask that allows no action is refused, unless the step terminates.

A reward vector is an array, as MO-Gymnasium's environments return it; `reward_space` of the environment has its shape.
`algo.reward_weights` weights its components. `env.wrappers.linear_reward={weights: [1, 0.5]}` turns it into one number.
"""


def cells(algo: str, kind: str, names: list[str]) -> Iterator[tuple[str, Values]]:
    """Yields probe environments of an algorithm that differ in one kind of space."""
    for name in names:
        given = home(algo) | {kind: name}
        if name == MASKED:
            given |= {"action": "discrete", "masks": "info"}
        yield name, probe(algo, given)


@cache
def home(algo: str) -> dict[str, str]:
    """Returns the first kinds of observation, action and reward that an algorithm supports."""
    for observation, action, reward in product(["box", "discrete", *OBSERVATIONS], ACTIONS, REWARDS):
        given = {"observation": observation, "action": action, "reward": reward}
        if refusal(probe(algo, given)) is None:
            return given
    raise AssertionError(f"algo={algo} takes none of the spaces")


def probe(algo: str, given: dict[str, str]) -> Values:
    return toy(algo, **{"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": given})


def refusal(values: Values, updates: int = 0) -> str | None:
    """Returns the reason for which a run is refused, or None if the run trains."""
    try:
        loop = build_loop(run_config(values))
    except ConfigError as error:
        return str(error)
    try:
        loop.begin()
        train(loop, updates)
    finally:
        loop.env.close()
    return None


def page() -> str:
    tables = "".join(f"\n## {kind.title()}s\n\n{table(kind, names)}" for kind, names in KINDS.items())
    return INTRODUCTION + tables


def table(kind: str, names: list[str]) -> str:
    lines = [heading(names), " | ".join(["---"] * (len(names) + 1))]
    for algo in ALGOS:
        lines.append(row(algo, [refusal(values) for _, values in cells(algo, kind, names)]))
    return "".join(f"| {line} |\n" for line in lines)


def heading(names: list[str]) -> str:
    return " | ".join(["algorithm", *names]).replace("_", " ")


def row(algo: str, refusals: list[str | None]) -> str:
    """Returns the row of an algorithm, from the reasons for which it is refused in every space."""
    marks = ["yes" if reason is None else "no" for reason in refusals]
    return " | ".join([f"`{algo}`", *marks])


if __name__ == "__main__":
    PAGE.write_text(page())
