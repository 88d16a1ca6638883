"""Rewards of environments: the shape of reward vectors, their weighted sum, and the unchanged sum for evaluation.

Reward vectors are MO-Gymnasium's: `step` returns an array, and the attribute `reward_space` declares its shape.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from rlrun.config.schema import config
from rlrun.registry import register


def reward_shape(env: Any) -> tuple[int, ...]:
    """(components,) of an environment, or of each of a vector of them; () where its reward is one number."""
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
        raise ValueError(f"a reward vector has two components or more; this one is {space}")
    return tuple(space.shape)


@register("wrapper", "linear_reward")
class LinearReward(gym.Wrapper):
    """One reward of several, each times its weight: for algorithms that take one number."""

    registered: ClassVar[str]
    reward_space = None  # whatever the wrapped environment declares

    @config
    class Config:
        weights: list[float]

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        if reward_shape(env) != (len(cfg.weights),):
            raise ValueError(f"linear_reward: {len(cfg.weights)} weights, rewards of shape {reward_shape(env)}")
        self.weights = np.asarray(cfg.weights, np.float64)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(self.weights @ np.asarray(reward)), terminated, truncated, info


@register("wrapper", "own_reward")
class OwnReward(gym.Wrapper):
    """Sums the rewards of the environment itself, inside of wrappers that change rewards. Evaluation adds it."""

    registered: ClassVar[str]

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        self.restart()

    def restart(self) -> None:
        """Begin a new sum. To be called after the reset of all wrappers, some of which take steps in it."""
        self.total = np.zeros(math.prod(reward_shape(self.env)))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        self.total = self.total + np.ravel(np.asarray(answer[1], np.float32))  # in float32, as every reward arrives
        return answer
