"""Environments so small that every value is known: an agent's errors in them show which part of it is wrong.

Five probes in the order in which parts of an agent are tested, a regulator, a memory task, two traps at the end of
episodes, and four that test the code around an agent. All are Gymnasium ids under `rlrun/`, for tests and for debugging
an agent.
"""

import itertools
import os
import time
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from rlrun.envs.builtin.probe_spaces import Spaces


class Probe(gym.Env):
    """One observation of one number; actions Discrete(2) or, with `continuous`, Box(-1, 1)."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, continuous: bool = False):
        self.continuous = continuous
        self.action_space = Discrete(2)
        if continuous:
            self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.state, self.t = 0.0, 0

    def start(self) -> float:
        """The state an episode begins with."""
        return 0.0

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        """(next state, reward, terminated, truncated); an action is 0 or 1, or a number in [-1, 1]."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.t = self.start(), 0
        return np.array([self.state], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.state, reward, terminated, truncated = self.move(float(np.asarray(action).item()))
        return np.array([self.state], np.float32), reward, terminated, truncated, {}

    def _sign(self) -> float:
        if self.np_random.random() < 0.5:
            return 1.0
        return -1.0


class Constant(Probe):
    """One step, reward 1. V(0) = 1: is the value loss right?"""

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 0.0, 1.0, True, False


class Observation(Probe):
    """One step, reward = observation (-1 or 1). V(s) = s: does the value see the observation?"""

    def start(self) -> float:
        return self._sign()

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return self.state, self.state, True, False


class Discount(Probe):
    """Two steps, 0 then 1, reward 1 at the end. V(1) = 1, V(0) = gamma: is the bootstrap right?"""

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 1.0, self.state, self.t == 2, False


class Action(Probe):
    """One step. Discrete: 1 for action 1, -1 for action 0. Continuous: 1 - (a - 0.5)^2. Does the policy move?"""

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        reward = 2.0 * action - 1.0
        if self.continuous:
            reward = 1.0 - (action - 0.5) ** 2
        return 0.0, reward, True, False


class ObservationAction(Probe):
    """One step. 1 where the action matches the sign s, else -1; continuous: 1 - (a - s/2)^2. Do both work together?"""

    def start(self) -> float:
        return self._sign()

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        reward = -1.0
        if self.continuous:
            reward = 1.0 - (action - self.state / 2) ** 2
        elif (action > 0.5) == (self.state > 0):
            reward = 1.0
        return self.state, reward, True, False


class Regulator(Probe):
    """s becomes s + a, for -(s^2 + a^2); cut after ten steps. Best is a = -k s with k of Riccati's equation."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)

    def start(self) -> float:
        return float(self.np_random.uniform(-1.0, 1.0))

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return self.state + action, -(self.state**2) - action**2, False, self.t == 10


class Recall(Probe):
    """A sign (-1 or 1), then `length` times 0; 1 for the last action where it matches the sign, else 0.

    A policy without memory gets 0.5.
    """

    def __init__(self, length: int = 10):
        super().__init__()
        self.length, self.sign = length, 0.0

    def start(self) -> float:
        self.sign = self._sign()
        return self.sign

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        end = self.t > self.length
        return 0.0, float(end and (action > 0.5) == (self.sign > 0)), end, False


class TerminationTrap(Probe):
    """One step, reward 1, terminated and truncated at once. V(0) = 1; a bootstrap past the end gives more."""

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 0.0, 1.0, True, True


class TruncationTrap(Probe):
    """From 0 to 1, where it stays with reward 1 until it is cut after five steps. V(1) = 1 / (1 - gamma).

    V(0) = gamma V(1). Treating truncation as termination, or bootstrapping from the next episode's first observation,
    gives less.
    """

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 1.0, self.state, False, self.t == 5


class Endless(Probe):
    """Never ends, reward 0: evaluation must end all the same."""

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 0.0, 0.0, False, False


class Counter(gym.Env):
    """Counts: observation (episode, step), reward = step. Ends after `length` steps, terminated or truncated.

    Rows that cross a reset, and lost or doubled transitions, show in the numbers. pays: the reward is a vector, the
    step times each of these, in memory that is reused.
    """

    observation_space = Box(0.0, np.inf, (2,), np.float64)
    action_space = Discrete(2)

    def __init__(self, length: int = 3, truncate: bool = False, pays: list[float] | None = None):
        self.length, self.truncate = length, truncate
        self.episode, self.t = -1, 0
        self.pays = self.reward_space = None
        if pays is not None:
            self.pays = np.array(pays)
            self.reward_space = Box(-np.inf, np.inf, (len(pays),))
        self.paid = np.zeros_like(self.pays)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return np.array([self.episode, 0.0]), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.t += 1
        end = self.t >= self.length
        obs = np.array([self.episode, self.t], np.float64)
        reward: Any = float(self.t)
        if self.pays is not None:
            reward = np.multiply(self.pays, self.t, out=self.paid)
        return obs, reward, end and not self.truncate, end and self.truncate, {}


class Hidden(gym.Env):
    """Counts up by 1 from a random start to the next multiple of 20, and keeps its state where it cannot be saved."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = itertools.count(int(self.np_random.integers(1000)))
        return np.array([next(self.count)], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        at = next(self.count)
        return np.array([at], np.float32), 1.0, at % 20 == 0, False, {}


class Faulty(Endless):
    """Goes wrong at step `at`: returns NaN, raises, never returns, or ends its process."""

    def __init__(
        self, kind: Literal["nan_obs", "nan_reward", "raise", "hang", "exit"], at: int = 10, continuous: bool = False
    ):
        super().__init__(continuous)
        self.kind, self.at, self.steps = kind, at, 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        if self.steps == self.at:
            if self.kind == "raise":
                raise ValueError("this environment raises on purpose")
            if self.kind == "exit":
                os._exit(3)
            while self.kind == "hang":
                time.sleep(1.0)
            if self.kind == "nan_obs":
                obs = obs * np.nan
            else:
                reward = np.nan
        return obs, reward, terminated, truncated, info


PROBES = {
    "ProbeConstant": Constant,
    "ProbeObservation": Observation,
    "ProbeDiscount": Discount,
    "ProbeAction": Action,
    "ProbeObservationAction": ObservationAction,
    "ProbeRegulator": Regulator,
    "ProbeRecall": Recall,
    "TerminationTrap": TerminationTrap,
    "TruncationTrap": TruncationTrap,
    "Endless": Endless,
    "Counter": Counter,
    "Hidden": Hidden,
    "Faulty": Faulty,
    "ProbeSpaces": Spaces,
}

for _name, _probe in PROBES.items():
    if f"rlrun/{_name}-v0" not in gym.registry:
        gym.register(f"rlrun/{_name}-v0", f"{_probe.__module__}:{_probe.__name__}")
