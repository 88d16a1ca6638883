"""Test functions for black-box optimisation as environments: the reward of an action a is -f(x_0 + a).

x_0 is the usual starting point of the function f, whose minimum is 0. An episode has one step, and observations are
empty. Without observations a linear policy is only its bias, so its parameters are the action. Evolutionary algorithms
then search for the action directly and can be compared by their number of evaluations.
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from rlrun.types import Info


class Function(gym.Env):
    """Base of the functions. Actions are vectors in an unbounded Box(dim,)."""

    start = 0.0  # each coordinate of the starting point: x = start + action
    observation_space = Box(-1.0, 1.0, (0,), np.float32)

    def __init__(self, dim: int = 10):
        if dim < 2:
            raise ValueError(f"dim={dim}: must be at least 2")
        self.action_space = Box(-np.inf, np.inf, (dim,), np.float32)

    def value(self, x: np.ndarray) -> float:
        """Returns f(x)."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        return np.zeros(0, np.float32), {}

    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, Info]:
        value = float(self.value(self.start + np.asarray(action, np.float64)))
        return np.zeros(0, np.float32), -value, True, False, {}


class Sphere(Function):
    """f(x) = sum x_i^2. The starting point is x_i = 3."""

    start = 3.0

    def value(self, x: np.ndarray) -> float:
        return x @ x


class Ellipsoid(Function):
    """f(x) = sum 10^(6 (i - 1) / (n - 1)) x_i^2. The starting point is x_i = 3.

    Its level sets are ellipsoids whose longest axis is a thousand times as long as the shortest.
    """

    start = 3.0

    def value(self, x: np.ndarray) -> float:
        return np.logspace(0, 6, len(x)) @ x**2


class Rosenbrock(Function):
    """f(x) = sum 100 (x_(i+1) - x_i^2)^2 + (1 - x_i)^2. The starting point is 0; a curved valley leads to x_i = 1."""

    def value(self, x: np.ndarray) -> float:
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


for _function in (Sphere, Ellipsoid, Rosenbrock):
    if f"rlrun/{_function.__name__}-v0" not in gym.registry:
        gym.register(f"rlrun/{_function.__name__}-v0", f"{__name__}:{_function.__name__}")
