"""Reward vectors: their shape, a wrapper that scalarises them, and a wrapper that sums the original rewards.

Reward vectors follow MO-Gymnasium: `step` returns an array, and the attribute `reward_space` declares its shape.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
import numpy as np

from rlrun.envs.stepping.returned import reward
from rlrun.settings import config, register
from rlrun.types import Info


def reward_shape(env: object) -> tuple[int, ...]:
    """Returns (components,) if the rewards of an environment are vectors, and () if they are scalars.

    For a vector environment it returns the shape for a single environment. Raises ValueError if `reward_space` is not
    one-dimensional with at least two components.
    """
    find: Callable[[str], Any] = partial(getattr, env)
    if isinstance(env, gym.Env):
        find = env.get_wrapper_attr
    try:
        space = find("reward_space")
    except AttributeError:
        space = None
    if space is None:
        return ()
    if len(space.shape) != 1 or space.shape[0] < 2:
        raise ValueError(f"a reward vector must have at least two components, but reward_space is {space}")
    return tuple(space.shape)


@register("wrapper", "linear_reward")
class LinearReward(gym.Wrapper):
    """Replaces a reward vector by the weighted sum of its components, for algorithms that need a scalar reward."""

    registered: ClassVar[str]
    reward_space = None  # hides the declaration of the wrapped environment: the reward is a scalar now

    @config
    class Config:
        weights: list[float]

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        if reward_shape(env) != (len(cfg.weights),):
            raise ValueError(f"linear_reward: {len(cfg.weights)} weights for rewards of shape {reward_shape(env)}")
        self.weights = np.asarray(cfg.weights, np.float64)

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(self.weights @ np.asarray(reward)), terminated, truncated, info


@register("wrapper", "own_reward")
class OwnReward(gym.Wrapper):
    """Sums the original rewards of the environment, before other wrappers change them. Evaluation adds this wrapper."""

    registered: ClassVar[str]

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        self.restart()

    def restart(self) -> None:
        """Sets the sum to 0. Call it after all wrappers have been reset, since some take steps during their reset."""
        self.shape = reward_shape(self.env)
        self.total = np.zeros(math.prod(self.shape))

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        answer = self.env.step(action)
        own = np.asarray(reward(answer[1], self.shape), np.float32)  # float32, as the rewards of the agent
        self.total = self.total + own.ravel()
        return answer
