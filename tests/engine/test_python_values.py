"""Agents that adapt a Python number train with the same bits in every engine, wherever the number is and whenever it
changes."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from toys import put, toy

from rlrun import testing
from rlrun.config.jobs import Job
from rlrun.core.agent import kernel
from rlrun.core.callback import Callback
from rlrun.run.job import train_job
from rlrun.settings import registry
from rlrun.types import Context

COEFFICIENT = 1.0
COEFFICIENTS = {"reward": 1.0}
STEPS, STEPS_ON_POLICY = 240, 1000  # some 100 and 60 updates
# algorithm -> a method that the engine records, or that such a method calls
KERNELS = {
    "a2c": "policy_loss",
    "ppo": "policy_loss",
    "ppo_lstm": "policy_loss",
    "dqn": "update_q",
    "sac": "update_critic",
    "td3": "update_critic",
    "soft_q": "update_critic",
    "crossq": "update_critic",
    "mdq": "update_critic",
    "q_learning": "update_q",
}


@dataclasses.dataclass
class Coefficients:
    reward: float = 1.0


def enclosing() -> tuple[Callable[[], float], Callable[[float], None]]:
    """Returns functions that read and set a variable that both enclose."""
    coefficient = 1.0

    def read() -> float:
        return coefficient

    def write(value: float) -> None:
        nonlocal coefficient
        coefficient = value

    return read, write


class Variant:
    """Mixed into an agent: holds a number in one place, which the agent reads in a kernel, and adapts it."""

    cfg: Any
    place: str
    moment: str
    series: str

    def prepare(self) -> None:
        self.drawn = random.Random(7)
        self.count = 0
        self.coefficient = 1.0
        self.plain = SimpleNamespace(coefficient=1.0)
        self.part = nn.LeakyReLU(1.0)
        self.coefficients = [0.0, 1.0]
        self.options = {"deep": {"reward": 1.0}}
        self.settings = Coefficients()
        self.read, self.write = enclosing()
        globals()["COEFFICIENT"] = COEFFICIENTS["reward"] = 1.0

    def number(self) -> Any:
        """Returns the number. It is called in a kernel."""
        if self.place == "attribute":
            return self.coefficient
        if self.place == "submodule":
            return self.part.negative_slope
        if self.place == "list":
            return self.coefficients[1]
        if self.place == "dict":
            return self.options["deep"]["reward"]
        if self.place == "object":
            return self.plain.coefficient
        if self.place == "dataclass":
            return self.settings.reward
        if self.place == "global":
            return COEFFICIENT
        if self.place == "global dict":
            return COEFFICIENTS["reward"]
        if self.place == "closure":
            return self.read()
        return self.cfg.gamma

    def set_number(self, value: Any) -> None:
        if self.place == "attribute":
            self.coefficient = value
        elif self.place == "submodule":
            self.part.negative_slope = value
        elif self.place == "list":
            self.coefficients[1] = value
        elif self.place == "dict":
            self.options["deep"]["reward"] = value
        elif self.place == "object":
            self.plain.coefficient = value
        elif self.place == "dataclass":
            self.settings = dataclasses.replace(self.settings, reward=value)
        elif self.place == "global":
            globals()["COEFFICIENT"] = value
        elif self.place == "global dict":
            COEFFICIENTS["reward"] = value
        elif self.place == "closure":
            self.write(value)
        else:
            object.__setattr__(self.cfg, "gamma", value)

    def adapt(self) -> None:
        """Sets the next number of the series."""
        self.count += 1
        if self.series == "decay":
            self.set_number(0.97**self.count)
        elif self.series == "alternating":
            self.set_number([1.0, 0.25][self.count % 2])
        else:
            self.set_number([1, True, 0.5, 2][self.count % 4])

    def updates(self, ctx: Context) -> None:
        """Called before every update."""
        every = {"update": 1, "10 updates": 10, "50 updates": 50}.get(self.moment)
        if every and ctx.updates % every == 0:
            self.adapt()
        if self.moment == "random updates" and self.drawn.random() < 0.05:
            self.adapt()


class Adapter(Callback):
    """Adapts the number when an evaluation ends, or with a row of metrics."""

    changes = "the coefficient"

    def on_evaluation(self, metrics: Any) -> None:
        if self.run.loop.agent.moment == "evaluation":
            self.run.loop.agent.adapt()

    def on_row(self, row: Any) -> None:
        if self.run.loop.agent.moment == "row":
            self.run.loop.agent.adapt()


def variant(algo: str, method: str, place: str, moment: str, series: str) -> type:
    """Returns a subclass of a shipped agent. method: a kernel that gets rewards, or `policy_loss`."""
    base: Any = registry.lookup("algo", algo)

    def begin(self: Any, *given: Any) -> None:
        base.__init__(self, *given)
        self.prepare()

    def update(self: Any, batch: Any, ctx: Context) -> Any:
        self.updates(ctx)
        return base.update(self, batch, ctx)

    def policy_loss(self: Any, *given: Any) -> Any:
        loss, metrics = base.policy_loss(self, *given)
        return loss * self.number(), metrics | {"coefficient": torch.as_tensor(float(self.number()))}

    @kernel
    def replay_update(self: Any, batch: Any, *rest: Any) -> Any:
        out = getattr(base, method)(self, batch | {"reward": batch["reward"] * self.number()}, *rest)
        metrics = out[0] if isinstance(out, tuple) else out
        metrics["loss/coefficient"] = torch.as_tensor(float(self.number()))
        return out

    changed = policy_loss if method == "policy_loss" else replay_update
    own = {"__init__": begin, "update": update, method: changed, "Config": base.Config}
    return type("Variant", (Variant, base), own | {"place": place, "moment": moment, "series": series})


@pytest.fixture
def registered() -> Iterator[Callable[[type], None]]:
    """Registers a variant and the callback for one test."""

    def register(cls: type) -> None:
        registry.register("algo", "variant")(cls)
        registry.register("callback", "adapter")(Adapter)

    yield register
    registry._registry["algo"].pop("variant", None)
    registry._registry["callback"].pop("adapter", None)


def trained(values: dict[str, Any], engine: str, folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """Trains a variant with an engine. Returns its log rows and its final weights."""
    changes = {"trainer.engine": engine, "run_dir": str(folder), "algo.name": "variant"}
    assert train_job(Job([], put(values, changes))).exit_code == 0
    return testing._rows(folder), testing._part(folder, "agent")


PLACES = ("attribute", "submodule", "list", "dict", "object", "dataclass", "global", "global dict", "closure", "cfg")
MOMENTS = ("update", "10 updates", "50 updates", "random updates", "evaluation", "row")
SERIES = ("decay", "alternating", "types")
VARIANTS = random.Random(0).sample([*itertools.product(KERNELS, PLACES, MOMENTS, SERIES)], 40)
FEW = [("ppo", "attribute", "update", "decay"), ("sac", "cfg", "50 updates", "decay"), VARIANTS[0]]


@pytest.mark.parametrize(
    ("algo", "place", "moment", "series"), [*FEW, *(pytest.param(*each, marks=pytest.mark.slow) for each in VARIANTS)]
)
def test_variant_with_a_python_number_trains_as_eager(
    algo: str, place: str, moment: str, series: str, registered: Callable[[type], None], tmp_path: Path
) -> None:
    values = toy(algo)
    registered(variant(values["algo"]["name"], KERNELS[algo], place, moment, series))
    steps = STEPS_ON_POLICY if "rollout_steps" in values["algo"]["loop"] else STEPS
    changes = {"callbacks": [{"name": "adapter"}], "logger": {}, "env.selftest": "off", "trainer.total_steps": steps}
    changes |= {"trainer.log_every": steps // 5, "trainer.eval_every": steps // 5, "trainer.eval_episodes": 1}
    values = put(values, changes)
    rows, weights = trained(values, "eager", tmp_path / "eager")
    other_rows, other_weights = trained(values, "auto", tmp_path / "auto")
    assert repr(rows) == repr(other_rows)  # NaN equals NaN
    assert testing.equal(weights, other_weights)
    assert {row.get("loss/coefficient") for row in rows} - {None, 1.0, values["algo"]["gamma"]}, "it never changes"
