"""What an environment declares in `reports` reaches the learners that read it, and nothing else."""

import os
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from toys import put, toy, train

from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.loop import Loop
from rlrun.envs.stepping import reports
from rlrun.envs.stepping.returned import ReturnedError
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError, RunError
from rlrun.settings import NonNegativeFloat, config, register, registry
from rlrun.testing import check_resuming
from rlrun.types import Batch, Metrics

Make = Callable[..., VectorEnv]
PRICE = Box(0.0, 10.0, (), np.float32)


@register("wrapper", "test_price")
class Price(gym.Wrapper):
    """Reports the price of an action, and whether it was dear as a whole number."""

    reports: ClassVar[Any] = {"price": PRICE, "dear": Discrete(2)}

    @config
    class Config:
        per_unit: NonNegativeFloat

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        self.per_unit = cfg.per_unit

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        price = self.per_unit * float(np.abs(action).sum())
        if self.per_unit:
            info = info | {"price": price, "dear": int(price > 0.5)}
        return obs, reward, terminated, truncated, info


@register("intrinsic", "test_thrift")
class Thrift(Intrinsic):
    """Minus the price of the action."""

    Config = Intrinsic.Config
    reads = ("price",)

    def scale(self, reward: torch.Tensor) -> torch.Tensor:
        return reward

    def raw_reward(self, rows: Batch) -> torch.Tensor:
        return -rows["price"]

    def fit(self, rows: Batch) -> Metrics:
        return {"loss/price": rows["price"].mean()}


WRAPPED = {"env.wrappers": {"test_price": {"per_unit": 0.5}}}
THRIFT = {
    "name": "test_thrift", "gamma": 0.9, "separate": None, "episodic": True, "coef": 1.0, "reward_coef": 0.0,
    "clip": None, "hidden": [4], "learning_rate": 0.01, "epochs": 1, "minibatch_size": None,
    "statistics": {"name": "all"}, "obs_statistics": {"name": "none"}, "obs_clip": 5.0, "network": None,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_steps_hold_the_reports_that_are_read_with_their_dtypes(backend: str, make: Make) -> None:
    env = make("Pendulum-v1", 2, backend=backend, wrappers={"test_price": {"per_unit": 0.5}})
    env.reset()
    action = torch.tensor([[1.0], [-0.25]])  # in units of [-1, 1]; the actions of Pendulum reach 2
    assert env.spec.reports == Price.reports
    assert "price" not in env.step(action)[0], "nobody reads it"
    env.read_reports = env.spec.reports
    step, _ = env.step(action)
    assert (step["price"].tolist(), step["price"].dtype) == ([1.0, 0.25], torch.float32)
    assert (step["dear"].tolist(), step["dear"].dtype) == ([1, 0], torch.int64)


def test_masked_rows_report_0(make: Make) -> None:
    env = make("Pendulum-v1", 2, backend="async", on_failure="restart", wrappers={"test_price": {"per_unit": 0.5}})
    env.reset()
    env.read_reports = {"price": PRICE}
    os.kill(env.pool.processes[1].pid, 9)
    step, events = env.step(torch.ones(2, 1))
    assert (step["price"].tolist(), step["weight"].tolist(), len(events.restarted)) == ([1.0, 0.0], [1.0, 0.0], 1)


def test_a_report_that_is_missing_or_outside_of_its_space_ends_the_run(make: Make) -> None:
    for per_unit, line in ((0.0, "its infos have no 'price', which it declares in `reports`"),
                           (1e308, r"info\['price'\] is inf, but its `reports` declare Box")):  # fmt: skip
        env = make("Pendulum-v1", wrappers={"test_price": {"per_unit": per_unit}})
        env.reset()
        env.step(torch.ones(1, 1))  # nobody reads it
        env.read_reports = {"price": PRICE}
        with pytest.raises(RunError, match=line):
            env.step(torch.ones(1, 1))


def test_two_reports_of_one_name_are_refused_and_other_attributes_ignored() -> None:
    env = gym.make("Pendulum-v1")
    env.unwrapped.reports = ["an attribute of this name"]
    assert reports.declared(env) == {}
    once = type("Inherits", (Price,), {})(Price.Config(per_unit=1.0), env)
    assert reports.declared(once) == Price.reports
    with pytest.raises(ConfigError, match="the environment or its wrappers report 'price' twice"):
        reports.declared(Price(Price.Config(per_unit=1.0), once))
    env.unwrapped.reports = {"nested": gym.spaces.Dict({"a": PRICE})}
    with pytest.raises(ConfigError, match="'nested' must be a Box or Discrete, not Dict"):
        reports.declared(env)
    for name in ("reward", "next_obs", "following", "log_prob", "weight"):
        env.unwrapped.reports = {name: PRICE}
        with pytest.raises(ConfigError, match="is taken; give the report another name"):
            reports.declared(env)
    env.unwrapped.reports = {"price.mean": PRICE}
    with pytest.raises(ConfigError, match=r"'price\.mean' has a dot; give the report another name"):
        reports.declared(env)


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_a_reward_module_learns_from_a_report_and_resumes(algo: str, build: Callable[..., Loop]) -> None:
    values = put(toy(algo), {**WRAPPED, "algo.intrinsic": {**THRIFT, "separate": False}})
    loop: Any = train(build(values), 2)
    batch = loop.batch
    price = {"sac": lambda action: action.abs().squeeze(-1), "ppo": lambda action: 0.5 * action}[algo](batch["action"])
    torch.testing.assert_close(batch["price"], price)  # Pendulum's actions reach 2; CartPole's are 0 and 1
    torch.testing.assert_close(batch["reward"], -price)
    assert batch["price"].any() and "dear" not in batch, "what nobody reads is not stored"
    check_resuming(loop, build(values))


def test_a_report_that_nobody_makes_is_refused_where_it_is_read(build: Callable[..., Loop]) -> None:
    with pytest.raises(ConfigError, match="algo=sac: reads 'price', but this environment reports nothing"):
        build(put(toy("sac"), {"algo.intrinsic": THRIFT}))


@pytest.mark.parametrize("algo", ["sac_from_data", "recurrent_sac"])
def test_a_report_that_a_loop_does_not_hand_on_is_refused(
    algo: str, build: Callable[..., Loop], monkeypatch: Any
) -> None:
    values = put(toy(algo), WRAPPED)
    cls = registry.lookup("algo", values["algo"]["name"])
    monkeypatch.setattr(cls, "reads", ("price",))
    with pytest.raises(ConfigError, match=r"reads 'price', which algo.loop=.* does not hand on to this algorithm"):
        build(values)


def test_arrays_of_vector_environments_are_checked_except_masked_rows() -> None:
    declared = {"price": PRICE, "kind": Discrete(3, start=1)}
    given = {"price": np.array([1.0, np.nan, 2.0]), "kind": np.array([1, 0, 3])}
    masked = np.array([False, True, False])
    found = reports.batch(declared, given, 3, masked)
    assert found["price"].tolist() == [1.0, 0.0, 2.0] and found["kind"].tolist() == [1, 0, 3]
    assert reports.batch(declared, {"price": [None], "kind": [None]}, 1)["kind"].tolist() == [0]
    assert np.isnan(given["price"][1]), "the array of the environment is left as it is"
    for wrong in (
        {**given, "price": np.ones(1)},
        {**given, "price": np.ones(())},
        {**given, "kind": given["kind"] + 1},
    ):
        with pytest.raises(ReturnedError, match=r"^info"):
            reports.batch(declared, wrong, 3, masked)
    with pytest.raises(ReturnedError, match="must be a dict"):
        reports.batch(declared, [1.0], 3)


@pytest.mark.parametrize(
    ("dtype", "stored", "refused"),
    [(np.uint8, 255, 300), (np.int8, -128, 128), (np.float32, 1e38, 1e39), (np.float64, 1e38, 1e300)],
)
def test_a_reported_number_that_its_dtype_does_not_hold_is_refused(dtype: Any, stored: Any, refused: Any) -> None:
    declared = {"price": Box(0, 1, (), dtype)}
    assert reports.batch(declared, {"price": [stored]}, 1)["price"] == pytest.approx(stored), "bounds are estimates"
    with pytest.raises(ReturnedError, match=r"^info\['price'\] is .*, but its `reports` declare Box"):
        reports.batch(declared, {"price": [refused]}, 1)


def test_a_vector_wrapper_shows_the_reports_of_the_environment_inside_it() -> None:
    env: Any = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")])
    env.unwrapped.reports = {"price": PRICE}
    assert reports.declared(gym.vector.VectorWrapper(env)) == {"price": PRICE}
