"""Lists the forms that the result of one step takes on its way to an update: `python scripts/forms.py`.

Follows one step of SAC and PPO, which ends an episode, from the return of the simulator's `step` to the call of
`update`, through all arguments and results of functions of rlrun. A form is a container of the reward and other values
of the step: its type, its keys, and whether it holds further steps. A dict that gets or loses keys keeps its form. A
value has changed its name if no key holds it in all forms. Of another commit: `PYTHONPATH=CHECKOUT/src python ...`
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.classic_control import PendulumEnv
from torch import Tensor

import rlrun
from rlrun.cli import main
from rlrun.core.agent import Agent
from rlrun.indexed import Indexed

RUN = "train env=Pendulum preset=none env.num_envs=1 env.max_episode_steps=3 env.selftest=off total_steps=8 logger=[]"
SAC = "algo=sac algo.loop.warmup_steps=3 algo.buffer.capacity=100 network.hidden=[8]"
PPO = "algo=ppo algo.loop.rollout_steps=4 algo.minibatch_size=4"


class Form(NamedTuple):
    """A container of values of the step."""

    type: str
    keys: tuple[str, ...]  # of a dict or a NamedTuple
    names: dict[str, set[str]]  # value of the step -> keys that hold it

    def is_in(self, other: "Form") -> bool:
        return self.type == other.type and {*self.keys} <= {*other.keys}


class Trace:
    """Follows the third step of a run, as a profiler of Python."""

    def __init__(self, run: Callable[[], object]):
        self.obs: list[float] = []  # a number of each observation
        self.values: dict[str, float] = {}  # values of the step -> the number by which each is found
        self.seen: list[Form] = []
        self.functions: dict[str, None] = {}  # in the order of their first call
        sys.setprofile(self)
        run()
        sys.setprofile(None)

    def __call__(self, frame: Any, event: str, result: Any) -> None:
        code, given = frame.f_code, frame.f_locals
        if event == "return" and code is PendulumEnv.step.__code__:
            self.obs.append(float(result[0][0]))
            if len(self.obs) == 3:
                self.values = {"obs": self.obs[1], "reward": float(result[1]), "successor": self.obs[2]}
        elif event in ("call", "return") and self.values and code.co_filename.startswith(rlrun.__path__[0]):
            looked = {"result": result} if event == "return" else given
            forms = [self.form(value) for name, value in looked.items() if name != "self"]
            if any(forms) and code.co_name[0] != "<":  # not a lambda
                self.seen += filter(None, forms)
                self.functions[code.co_qualname] = None
                if code.co_name == "update" and isinstance(given["self"], Agent):
                    sys.setprofile(None)

    def form(self, value: Any) -> Form | None:
        """Returns the smallest container in a value that holds as much of the step as the value, or None."""
        arrays = [*leaves(value)]
        names = {name: {key for key, array in arrays if number in array} for name, number in self.values.items()}
        names = {name: keys for name, keys in names.items() if keys}
        if "reward" not in names or len(names) == 1:
            return None
        for inner in filter(None, map(self.form, parts(value).values())):
            if inner.names.keys() == names.keys():
                return inner
        kind = type(value).__name__
        if any(array.size > 1 for _, array in arrays if self.values["reward"] in array):
            kind += " of several steps"
        if isinstance(value, tuple) and len(value) == 5 and isinstance(value[4], dict):
            kind = ""  # the five results of Gymnasium's `step`
        return Form(kind, tuple(key for key in parts(value) if isinstance(key, str)), names)

    def forms(self) -> list[Form]:
        """Returns the forms after those of the simulator, each once and with most keys."""
        seen = sorted(self.seen, key=lambda form: -len(form.keys))
        return [form for i, form in enumerate(seen) if form.type and not any(map(form.is_in, seen[:i]))]

    def renamed(self) -> list[str]:
        """Returns the values of the step that change their names."""
        named = [form.names for form in self.forms() if form.keys]
        return [name for name in self.values if not set.intersection(*(held[name] for held in named if name in held))]


def parts(value: Any) -> dict[Any, Any]:
    """Returns the entries of a container by key or position; {} for other values."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()  # type: ignore[no-any-return]
    if isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.dtype == object):
        return dict(enumerate(value))
    return value if isinstance(value, dict) else {}


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yields all arrays in a container, each with the last key on the way to it."""
    if isinstance(value, Tensor | Indexed):
        value = value.detach().numpy()
    if isinstance(value, float | np.number | np.ndarray) and np.asarray(value).dtype != object:
        yield key, np.asarray(value)
    for name, part in parts(value).items():
        yield from leaves(part, name if isinstance(name, str) else key)


if __name__ == "__main__":
    for words in (SAC, PPO):
        with tempfile.TemporaryDirectory() as folder:
            trace = Trace(partial(main, [*RUN.split(), *words.split(), f"run_dir={folder}/run"]))
        counts = f"{len(trace.forms())} forms, {len(trace.functions)} functions, names that change: {trace.renamed()}"
        print(words, counts, *trace.forms(), ", ".join(trace.functions), sep="\n    ")
