"""Very small environments with known values, which show what part of an agent, or of the code around it, is wrong.

The first five are in the order in which one tests the parts of an agent. A linear-quadratic regulator and two tasks for
mistakes at the end of episodes follow. The others test the code around an agent. All are registered under `rlrun/`.
"""

import itertools
import os
import sys
import time
from typing import Any, Literal, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from probe_spaces import Spaces

from rlrun.types import Info


class Probe(gym.Env):
    """Base of the probes. Observations are one number; actions are Discrete(2), or Box(-1, 1) with `continuous`."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, continuous: bool = False):
        self.continuous = continuous
        self.action_space = Discrete(2)
        if continuous:
            self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.state, self.t = 0.0, 0

    def start(self) -> float:
        """Returns the initial state of an episode."""
        return 0.0

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        """Returns (next state, reward, terminated, truncated). `action` is 0 or 1, or a number in [-1, 1]."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.state, self.t = self.start(), 0
        return np.array([self.state], np.float32), {}

    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, Info]:
        self.t += 1
        self.state, reward, terminated, truncated = self.move(float(np.asarray(action).item()))
        return np.array([self.state], np.float32), reward, terminated, truncated, {}

    def _sign(self) -> float:
        if self.np_random.random() < 0.5:
            return 1.0
        return -1.0


class Constant(Probe):
    """One step with reward 1, so V(0) = 1. Tests the loss of the critic."""

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 0.0, 1.0, True, False


class Observation(Probe):
    """One step; the reward equals the observation (-1 or 1), so V(s) = s. Tests that the critic uses observations."""

    def start(self) -> float:
        return self._sign()

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return self.state, self.state, True, False


class Discount(Probe):
    """Two steps, in the states 0 and 1, with reward 1 at the end: V(1) = 1, V(0) = gamma. Tests bootstrapping."""

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 1.0, self.state, self.t == 2, False


class Action(Probe):
    """One step. Tests that the policy improves.

    Discrete actions: reward 1 for action 1, -1 for action 0. Continuous actions: reward 1 - (a - 0.5)^2.
    """

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        reward = 2.0 * action - 1.0
        if self.continuous:
            reward = 1.0 - (action - 0.5) ** 2
        return 0.0, reward, True, False


class ObservationAction(Probe):
    """One step, with observation s = -1 or 1. Tests critic and policy together.

    Discrete actions: reward 1 for action 1 if s = 1 and for action 0 if s = -1, else -1. Continuous actions: reward
    1 - (a - s/2)^2.
    """

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
    """A linear-quadratic regulator: the next state is s + a, the reward -(s^2 + a^2). Truncated after ten steps.

    The optimal policy is a = -k s, with k from the Riccati equation.
    """

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)

    def start(self) -> float:
        return float(self.np_random.uniform(-1.0, 1.0))

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return self.state + action, -(self.state**2) - action**2, False, self.t == 10


class TerminationTrap(Probe):
    """One step with reward 1, which is both terminated and truncated, so V(0) = 1.

    An agent that bootstraps at such a step learns a larger value.
    """

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 0.0, 1.0, True, True


class TruncationTrap(Probe):
    """The state goes from 0 to 1 and stays there with reward 1; episodes are truncated after five steps.

    V(1) = 1 / (1 - gamma) and V(0) = gamma V(1). An agent that treats truncation as termination, or that bootstraps
    from the first observation of the next episode, learns smaller values.
    """

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 1.0, self.state, False, self.t == 5


class Endless(Probe):
    """Episodes that never end, with reward 0. Tests that evaluation ends nevertheless."""

    def move(self, action: float) -> tuple[float, float, bool, bool]:
        return 0.0, 0.0, False, False


class Counter(gym.Env):
    """The observation is (episode number, step), the reward is the step. Episodes have `length` steps.

    These numbers reveal transitions that are lost, duplicated or joined across a reset. truncate: whether episodes are
    truncated instead of terminated. factors: if set, the reward is a vector, the step number times each factor, in an
    array that the next step overwrites.
    """

    observation_space = Box(0.0, np.inf, (2,), np.float64)
    action_space = Discrete(2)

    def __init__(self, length: int = 3, truncate: bool = False, factors: list[float] | None = None):
        self.length, self.truncate = length, truncate
        self.episode, self.t = -1, 0
        self.factors = self.reward_space = None
        if factors is not None:
            self.factors = np.array(factors)
            self.reward_space = Box(-np.inf, np.inf, (len(factors),))
        self.reward = np.zeros_like(self.factors)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return np.array([self.episode, 0.0]), {}

    def step(self, action: object) -> tuple[np.ndarray, SupportsFloat, bool, bool, Info]:
        self.t += 1
        end = self.t >= self.length
        obs = np.array([self.episode, self.t], np.float64)
        reward: Any = float(self.t)
        if self.factors is not None:
            reward = np.multiply(self.factors, self.t, out=self.reward)
        return obs, reward, end and not self.truncate, end and self.truncate, {}


class Hidden(gym.Env):
    """Counts up by 1 from a random number to the next multiple of 20, in an object that cannot be saved."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.count = itertools.count(int(self.np_random.integers(1000)))
        return np.array([next(self.count)], np.float32), {}

    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, Info]:
        at = next(self.count)
        return np.array([at], np.float32), 1.0, at % 20 == 0, False, {}


class Faulty(Endless):
    """Fails in step `at`, counted over all episodes: by `kind`, it returns NaN, raises, hangs, or ends its process."""

    def __init__(
        self,
        kind: Literal["nan_obs", "nan_reward", "raise", "leave", "hang", "exit"],
        at: int = 10,
        continuous: bool = False,
    ):
        super().__init__(continuous)
        self.kind, self.at, self.steps = kind, at, 0

    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, Info]:
        obs, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        if self.steps == self.at:
            if self.kind == "raise":
                raise ValueError("this environment raises on purpose")
            if self.kind == "leave":
                sys.exit("the window is closed")
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
