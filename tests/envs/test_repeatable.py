"""The self-test reports environments whose episodes depend on more than their seed and their actions."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TransformReward

from rlrun.envs.making.native import Native
from rlrun.envs.saving.selftest import NATIVE, REPLAY, self_test, simulator_self_test
from rlrun.envs.stepping.slot import EnvSlot


class Noise(gym.Env):
    """Shows random numbers from a source. It samples actions of its own too, which is allowed."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def __init__(self, draw: Callable[["Noise"], float]):
        self.draw, self.own = draw, np.random.default_rng()
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episodes = getattr(self, "episodes", 0) + 1  # a counter without effect
        self.t = 0
        return np.array([self.draw(self)]), {}

    def step(self, action: int) -> Any:
        self.t += 1
        x = self.draw(self) + float(np.all(self.action_space.sample() == action))
        return np.array([x]), x, False, self.t >= 7, {}


class Doubling(Noise):
    """Writes to its actions, which is allowed."""

    def __init__(self, draw: Callable[[Noise], float]):
        super().__init__(draw)
        self.action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, **given: Any) -> Any:
        self.stream = iter(range(99))  # cannot be saved
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        action *= 2
        obs, *rest = super().step(0)
        return obs + action, *rest


class Centred(gym.ObservationWrapper):
    """Subtracts the mean of all observations so far."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.total = self.count = 0.0

    def observation(self, observation: Any) -> Any:
        self.total, self.count = self.total + observation, self.count + 1
        return observation - self.total / self.count


def seeded(env: Noise) -> float:
    return float(env.np_random.normal())


def result_of(wrapper: Callable[[gym.Env], gym.Env], draw: Callable[[Noise], float] = seeded) -> Any:
    return self_test(partial(EnvSlot, lambda: wrapper(Noise(draw)), 0))


@pytest.mark.parametrize(
    "draw",
    [
        lambda env: np.random.normal(),
        lambda env: random.random(),
        lambda env: torch.rand(()).item(),
        lambda env: env.own.normal(),
        lambda env: env.own.normal() * (env.t > 5),  # late in an episode
    ],
)
def test_environments_that_ignore_the_seed_are_reported(draw: Callable[[Noise], float]) -> None:
    assert "so equal seeds do not give equal runs" in result_of(gym.Wrapper, draw).unrepeatable


def test_later_episodes_are_compared_however_long_the_first_is() -> None:
    class Long(Noise):
        def step(self, action: int) -> Any:
            obs, reward, *_ = super().step(action)
            return obs, reward, False, False, {}

    result = self_test(partial(EnvSlot, lambda: Long(lambda env: env.own.normal() * (env.episodes > 1)), 0))
    assert "so equal seeds do not give equal runs" in result.unrepeatable


def counted(env: gym.Env) -> gym.Env:
    steps: list[float] = []

    def transformed(reward: float) -> float:
        steps.append(reward)
        return reward * len(steps)

    return TransformReward(env, transformed)


@pytest.mark.parametrize(
    ("wrapper", "names"),
    [
        (NormalizeObservation, "NormalizeObservation.obs_rms"),
        (NormalizeReward, "NormalizeReward.return_rms"),
        (Centred, "Centred.total, Centred.count"),
        (counted, "Noise.episodes"),
    ],
)
def test_state_that_a_reset_keeps_is_reported_by_name(wrapper: Any, names: str) -> None:
    line = result_of(wrapper).unrepeatable
    assert f"it keeps state ({names}" in line and "env.normalize=obs" in line


def test_environments_that_follow_their_seed_are_not_reported() -> None:
    assert result_of(gym.Wrapper).unrepeatable == ""
    assert simulator_self_test(partial(Native, partial(CartPoleVectorEnv, 2))).unrepeatable == ""


@pytest.mark.parametrize(("draw", "method"), [(seeded, NATIVE), (lambda env: next(env.stream), REPLAY)])
def test_environments_that_write_to_their_actions_are_exact_and_not_reported(draw: Any, method: str) -> None:
    result = self_test(partial(EnvSlot, lambda: Doubling(draw), 0))
    assert (result.name, result.unrepeatable) == (method, "")


def test_vector_envs_that_write_to_their_actions_are_exact_and_not_reported() -> None:
    class Writing(CartPoleVectorEnv):
        def step(self, action: Any) -> Any:
            chosen = action.copy()
            action[:] = 0
            return super().step(chosen)

    result = simulator_self_test(partial(Native, partial(Writing, 2)))
    assert (result.name, result.unrepeatable) == (NATIVE, "")


@pytest.mark.parametrize("wrapper", [NormalizeObservation, NormalizeReward])
def test_statistics_of_gymnasium_wrappers_are_saved_exactly(wrapper: Any) -> None:
    assert result_of(wrapper).name == NATIVE


def test_vector_envs_with_statistics_are_reported() -> None:
    def make() -> Any:
        return gym.wrappers.vector.NormalizeObservation(CartPoleVectorEnv(2))

    assert "NormalizeObservation.obs_rms" in simulator_self_test(partial(Native, make)).unrepeatable


class First(CartPoleVectorEnv):
    """Adds a number to the first observations. Counts its resets in four attributes."""

    a = b = c = 0

    def __init__(self, draw: Callable[["First"], float]):
        super().__init__(2)
        self.draw = draw

    def reset(self, **given: Any) -> Any:
        self.a, self.b, self.c = self.a + 1, self.b + 1, self.c + 1
        self.d = {"resets": np.full(2, self.a)}
        obs, info = super().reset(**given)
        return obs + self.draw(self), info


def test_first_observations_of_vector_envs_are_compared() -> None:
    unseeded = simulator_self_test(partial(Native, partial(First, lambda env: np.random.normal())))
    assert "so equal seeds do not give equal runs" in unseeded.unrepeatable
    counted = simulator_self_test(partial(Native, partial(First, lambda env: env.a)))
    assert "it keeps state (First.a, First.b, First.c) across" in counted.unrepeatable
