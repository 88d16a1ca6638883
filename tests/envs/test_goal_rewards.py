"""Rewards of goals come from the environment's own compute_reward, in this process or in a worker."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from rlrun.envs.stepping.goal_functions import GoalFunctions
from rlrun.envs.stepping.slot import EnvSlot
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError, RunError

Make = Callable[..., VectorEnv]
PLACE = Box(-1.0, 1.0, (2,), np.float32)


class Goals(gym.Env):
    """A goal environment whose functions take single goals only, like those of PointMaze."""

    observation_space = Dict(achieved_goal=PLACE, desired_goal=PLACE)
    action_space = Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> float:
        return -float(np.linalg.norm(achieved_goal - desired_goal))

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> bool:
        return bool(np.linalg.norm(achieved_goal - desired_goal) <= 0.5)


class ReadsInfo(Goals):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> float:
        return float(info["bonus"])


class Pairs(Goals):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> Any:
        return desired_goal - achieved_goal


class FarAway(Goals):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> float:
        if abs(achieved_goal).max() > 1:
            raise ValueError("out of the room")
        return np.inf if achieved_goal[0] == 0 else 0.0


class Doubled(gym.Wrapper):
    """A wrapper with a reward function of its own, for batches."""

    calls = 0

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> Any:
        self.calls += 1
        return -2 * np.linalg.norm(achieved_goal - desired_goal, axis=-1)


def functions(make: Callable[[], gym.Env]) -> GoalFunctions:
    return GoalFunctions(EnvSlot(make, 0), PLACE, PLACE)


def test_goal_functions_of_single_goals_are_called_for_every_row() -> None:
    found = functions(Goals)
    achieved, desired = np.random.default_rng(0).uniform(-1, 1, (2, 20, 2)).astype(np.float32)
    reward, terminated = found(achieved, desired)
    distance = np.linalg.norm(achieved - desired, axis=-1)
    assert reward == pytest.approx(-distance) and reward.dtype == np.float32
    assert terminated is not None and terminated.tolist() == (distance <= 0.5).tolist()


@pytest.mark.parametrize("shape", [(-1, 1), (1, -1)])
def test_goal_functions_may_return_a_column(shape: tuple[int, int]) -> None:
    class Column(Goals):
        calls = 0

        def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> Any:
            type(self).calls += 1
            return -np.linalg.norm(achieved_goal - desired_goal, axis=-1).reshape(shape)

        def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> Any:
            return np.linalg.norm(achieved_goal - desired_goal, keepdims=True) <= 0.5  # of single goals only

    found = functions(Column)
    before = Column.calls
    achieved, desired = np.random.default_rng(0).uniform(-1, 1, (2, 20, 2)).astype(np.float32)
    reward, terminated = found(achieved, desired)
    distance = np.linalg.norm(achieved - desired, axis=-1)
    assert reward.shape == (20,) and reward == pytest.approx(-distance)
    assert terminated is not None and terminated.tolist() == (distance <= 0.5).tolist()
    assert Column.calls == before + 1, "a function for batches is called once"


def test_goal_functions_are_those_of_the_outermost_wrapper() -> None:
    doubled = Doubled(Goals())
    found = functions(lambda: gym.wrappers.TimeLimit(doubled, 10))
    before = doubled.calls
    achieved, desired = np.zeros((4, 2), np.float32), np.ones((4, 2), np.float32)
    reward, terminated = found(achieved, desired)
    assert reward == pytest.approx(-2 * 2**0.5) and terminated is not None and not terminated.any()
    assert doubled.calls == before + 1, "a function for batches is called once"


LACKING = r"needs compute_reward\(achieved_goal, desired_goal, info\), which .*; or set algo.buffer.reward=distance$"


def test_goal_functions_need_compute_reward_and_no_info() -> None:
    with pytest.raises(
        ConfigError,
        match=LACKING,
    ):
        functions(lambda: gym.make("CartPole-v1"))
    with pytest.raises(ConfigError, match=r"ReadsInfo cannot compute rewards of goals with an empty info .*'bonus'"):
        functions(ReadsInfo)
    with pytest.raises(ConfigError, match=r"Pairs cannot compute rewards of goals .*its result has shape \(2,\)"):
        functions(Pairs)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_goal_rewards_are_those_of_the_environment(make: Make, backend: str) -> None:
    env = make("rlrun/BitFlip-v0", 2, kwargs={"bits": 3}, backend=backend)
    goals = env.spec.goal_rewards
    goals.open(env.spec.obs["achieved_goal"], env.spec.obs["desired_goal"])
    bits = torch.tensor([[0, 1, 1], [1, 1, 1], [0, 0, 0]], dtype=torch.int8)
    for _ in range(2):
        reward, terminated = goals(bits, torch.ones_like(bits))
        assert reward.tolist() == [-1.0, 0.0, -1.0] and terminated.tolist() == [0.0, 1.0, 0.0]
    env.close()
    assert goals.pipe is None and goals.env is None
    point = make("rlrun/PointReach-v0", backend=backend).spec.goal_rewards
    point.open(PLACE, PLACE)
    near = torch.tensor([[0.0, 0.0], [0.5, 0.0]])
    reward, terminated = point(near, near + 0.02)
    assert reward.tolist() == [0.0, 0.0] and terminated is None


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_goal_rewards_fail_in_one_line(make: Make, backend: str) -> None:
    with pytest.raises(ConfigError, match="hindsight needs compute_reward"):
        make("CartPole-v1", backend=backend).spec.goal_rewards.open(PLACE, PLACE)
    if backend == "sync":
        gym.register("FarAway-v0", FarAway)
        far = make("FarAway-v0").spec.goal_rewards
        far.open(PLACE, PLACE)
        with pytest.raises(RunError, match=r"env FarAway-v0: rewards of goals cannot be computed .*out of the room"):
            far(torch.full((3, 2), 9.0), torch.zeros(3, 2))
        with pytest.raises(RunError, match="compute_reward returned a number that is not finite"):
            far(torch.zeros(3, 2), torch.zeros(3, 2))
        del gym.registry["FarAway-v0"]
