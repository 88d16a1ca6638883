"""Rewards of several components, as MO-Gymnasium has them: `step` returns an array, `reward_space` says its shape."""

from functools import partial
from typing import Any

import gymnasium as gym


def reward_shape(env: Any) -> tuple[int, ...]:
    """(components,) of an environment, or of each of a vector of them; () where its reward is one number."""
    find = env.get_wrapper_attr if isinstance(env, gym.Env) else partial(getattr, env)
    try:
        space = find("reward_space")
    except AttributeError:
        space = None
    if space is None:
        return ()
    if len(space.shape) != 1 or space.shape[0] < 2:
        raise ValueError(f"a reward vector has two components or more; this one is {space}")
    return tuple(space.shape)
