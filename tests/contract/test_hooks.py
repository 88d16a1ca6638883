"""The order and the number of calls of every hook of an agent and an add-on, in each kind of loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toys import Values, toy

from rlrun.addons.rewards.intrinsic.bonus import SharedBonus
from rlrun.agents.policy.a2c import A2C
from rlrun.cli import main
from rlrun.core.loop import Loop

Build = Callable[..., Loop]
OF_AGENT = ("act", "warm_up", "agent.update", "report")
OF_ADDON = ("see", "on_step", "reward", "on_batch", "relabel", "scale", "addon.update", "on_evaluation")
RND = {
    "name": "rnd", "gamma": 0.9, "separate": False, "episodic": True, "coef": 1.0, "reward_coef": 1.0, "clip": None,
    "hidden": [8], "learning_rate": 0.01, "epochs": 1, "minibatch_size": None, "embedding": 4, "obs_clip": 5.0,
    "network": None, "frames": 1,
    "statistics": {"name": "all"}, "obs_statistics": {"name": "all"},
}  # fmt: skip
HYBRID = {
    "name": "hybrid", "warmup_steps": 0, "warmup_policy": "random", "refill_policy": "agent", "start_update": None,
    "updates_per_step": 0.5, "update_every": 1, "batch_size": 4, "data": None, "data_steps": 2, "data_env": "same",
    "online_after": 2, "online_every": 1, "lag": 0, "shards": None, "shard_steps": None,
}  # fmt: skip
ACT = "see act"
STEP = "on_step reward"
LEARN = "relabel scale agent.update addon.update"
FROM_REPLAY = f"on_batch {LEARN}"


@pytest.fixture(autouse=True)
def with_on_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the add-on an `on_batch` of its own, because that of the base class is not called."""

    def on_batch(self: SharedBonus, batch: Any, phase: str) -> None: ...

    monkeypatch.setattr(SharedBonus, "on_batch", on_batch)


def noting(name: str, method: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """Returns the method of an agent or an add-on, which writes its name into a list when it is called."""

    def call(*args: Any, **settings: Any) -> Any:
        calls.append(name)
        return method(*args, **settings)

    return call


def ticks(values: Values, build: Build) -> list[list[str]]:
    """Returns the hooks that each of three ticks calls."""
    loop: Any = build(values)
    calls: list[str] = []
    (addon,) = loop.addons.reward_modules
    for owner, names in ((loop.agent, OF_AGENT), (addon, OF_ADDON)):
        for word in names:
            method = word.rpartition(".")[2]
            object.__setattr__(owner, method, noting(word, getattr(owner, method), calls))
    found = []
    for _ in range(3):
        calls.clear()
        loop.tick()
        found.append([*calls])
    return found


def words(*parts: str) -> list[str]:
    return " ".join(parts).split()


def test_hooks_of_the_onpolicy_loop(build: Build) -> None:
    """A rollout is collected, then counted step by step, then learned from."""
    values = toy("ppo", **{"algo.intrinsic": RND, "algo.loop.rollout_steps": 3})
    found = ticks(values, build)
    assert found == 3 * [words(*3 * [ACT], *3 * [STEP], LEARN)]


def test_hooks_of_the_onpolicy_loop_with_lag(build: Build) -> None:
    """The agent learns from a rollout when the next one is taken. Then its steps are counted, and add-ons learn."""
    values = toy("ppo", **{"algo.intrinsic": RND, "algo.loop.rollout_steps": 18, "algo.loop.lag": 1})
    found = ticks(values, build)
    learned = words(*18 * [ACT], "relabel scale agent.update", *18 * [STEP], "addon.update")
    assert found == [words(*18 * [ACT], *18 * [STEP]), learned, learned]


def test_hooks_of_the_offpolicy_loop(build: Build) -> None:
    """The first transitions of two environments come from the warm-up; then each calls for half an update."""
    changes = {"algo.intrinsic": RND, "algo.loop.warmup_steps": 2, "algo.loop.updates_per_step": 0.5}
    found = ticks(toy("sac", **changes), build)
    assert found == [words("see warm_up", STEP), words(ACT, STEP, FROM_REPLAY), words(ACT, STEP, FROM_REPLAY)]


def test_hooks_of_the_offpolicy_loop_between_exchanges(build: Build) -> None:
    """After the warm-up, all steps are taken before the first is counted, and all are counted before an update."""
    changes = {"algo.loop.warmup_steps": 2, "algo.loop.updates_per_step": 0.5, "algo.loop.shard_steps": 3}
    found = ticks(toy("sac", **changes, **{"algo.intrinsic": RND}), build)
    assert found == [words("see warm_up", STEP), *2 * [words(*3 * [ACT], *3 * [STEP], *3 * [FROM_REPLAY])]]


def test_hooks_of_the_hybrid_loop(build: Build) -> None:
    """Two updates learn from the data set alone; the third tick collects too."""
    pytest.importorskip("minari")
    found = ticks(toy("sac", **{"algo.intrinsic": RND, "algo.loop": HYBRID}), build)
    assert found == [words(FROM_REPLAY), words(FROM_REPLAY), words(ACT, STEP, FROM_REPLAY)]


def test_hooks_of_log_rows_and_evaluations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run of three updates writes a row after the second, and evaluates after the third, before its row."""
    calls: list[str] = []
    for cls, word in (
        (A2C, "agent.update"),
        (A2C, "report"),
        (SharedBonus, "addon.update"),
        (SharedBonus, "on_evaluation"),
    ):
        method = word.rpartition(".")[2]
        monkeypatch.setattr(cls, method, noting(word, getattr(cls, method), calls))
    settings = {
        "env.num_envs": 2, "algo.loop.rollout_steps": 2, "algo.intrinsic.separate": "false", "trainer.log_every": 8,
        "trainer.eval_every": 12, "trainer.eval_max_steps": 5, "trainer.total_steps": 12,
    }  # fmt: skip
    own = [f"{key}={value}" for key, value in settings.items()]
    assert (
        main(["train", "algo=ppo_rnd", "env=CartPole", "preset=none", "logger=[]", f"run_dir={tmp_path}/run", *own])
        == 0
    )
    learn = "agent.update addon.update"
    assert calls == words(2 * f"{learn} ", "report", learn, "on_evaluation report")
