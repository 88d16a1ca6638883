"""An environment as the rest of rlrun reads it: parts of observations in dicts alone, and action masks among them.

Tuples become dicts with the keys "0", "1", ... A mask of actions, be it `info["action_mask"]` or an entry of the
observation, becomes the entry `types.MASK`.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlrun.errors import ConfigError
from rlrun.types import MASK


class FromTuple(spaces.Dict):
    """A Tuple as a Dict, with its parts under "0", "1", ...; printed as the Tuple that the environment has."""

    def __repr__(self) -> str:
        return f"Tuple({', '.join(repr(self[key]) for key in sorted(self.spaces, key=int))})"


class WithMask(spaces.Dict):
    """An observation that is no Dict, with a mask beside it; printed as the observation that the environment has."""

    def __repr__(self) -> str:
        return f"{self['obs']} with action masks (env.action_mask=false leaves these out)"


class Presented(gym.Wrapper):
    """`masked`: whether infos hold an action mask."""

    def __init__(self, env: gym.Env, masked: bool):
        super().__init__(env)
        space = _space(env.observation_space)
        entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {"obs": space}
        self.masked = masked or (MASK in entries and not isinstance(env.action_space, spaces.Box))
        self.bare = not isinstance(space, spaces.Dict)  # whether a mask needs a dict around the observation
        if self.masked:
            entries[MASK] = spaces.MultiBinary(len(self._mask(None)))
            space = WithMask(entries) if self.bare else spaces.Dict(entries)
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._present(obs, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._present(obs, info), reward, terminated, truncated, info

    def _present(self, obs: Any, info: dict[str, Any]) -> Any:
        value = in_dicts(obs)
        if not self.masked:
            return value
        shown = obs.get(MASK) if isinstance(obs, dict) else None
        return ({"obs": value} if self.bare else value) | {MASK: self._mask(info.get(MASK, shown))}

    def _mask(self, mask: Any) -> np.ndarray:
        """One number for every choice, from Gymnasium's form for `Space.sample`; None allows everything."""
        space, size = self.env.action_space, sum(_sizes(self.env.action_space))
        flat = np.ones(size, np.int8) if mask is None else _flat(mask)
        if isinstance(space, spaces.MultiBinary) and 2 * len(flat) == size:  # what each bit must be; 2: either
            flat = np.stack([flat != 1, flat != 0], -1).ravel()
        if len(flat) != size:
            raise ValueError(f"{MASK} has {len(flat)} entries, {space} has {size} choices")
        return flat.astype(np.int8)


def presented(env: gym.Env, masked: bool) -> gym.Env:
    """The environment itself where there is nothing to change."""
    space = env.observation_space
    has_mask = isinstance(space, spaces.Dict) and MASK in space.spaces
    return Presented(env, masked) if masked or has_mask or _has_tuple(space) else env


def as_tensors(space: gym.Space, entry: str | None = None) -> gym.Space:
    """An observation space as tensors show it: boxes in float32, but for those of bytes. Raises ConfigError.

    `entry`: the key under which the observation holds this space, None where it is the whole.
    """
    if isinstance(space, spaces.Dict):
        kind = type(space) if isinstance(space, FromTuple | WithMask) else spaces.Dict
        return kind({key: as_tensors(part, entry or key) for key, part in space.items()})
    if isinstance(space, spaces.Box) and space.dtype not in (np.float32, np.uint8):
        with np.errstate(over="ignore"):  # wider than float32: unbounded
            return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        name = type(space).__name__
        hint = f"; env.wrappers.hide.entries=[{entry}] leaves this one out" if entry else ""
        raise ConfigError(f"env: {name} observations are not supported: they have no fixed shape{hint}")
    return space


def shows_masks(env: gym.Env) -> bool:
    """Whether infos of an environment hold an action mask. Resets it to see, where its actions may have one."""
    return not isinstance(env.action_space, spaces.Box) and MASK in env.reset(seed=0)[1]


def sample(space: Any, obs: Any) -> Any:
    """A random action that the observation, as presented, allows."""
    if isinstance(space, spaces.Box) or not (isinstance(obs, dict) and MASK in obs):
        return space.sample()
    parts = np.split(obs[MASK], np.cumsum(_sizes(space))[:-1])
    drawn = [space.np_random.choice(np.flatnonzero(part if part.any() else part == 0)) for part in parts]
    return (np.reshape(drawn, space.shape) + getattr(space, "start", 0)).astype(space.dtype)


def _sizes(space: Any) -> list[int]:
    """Choices of every decision."""
    match space:
        case spaces.Discrete():
            return [int(space.n)]
        case spaces.MultiDiscrete():
            return [int(n) for n in space.nvec.flat]
    return [2] * int(np.prod(space.shape))


def _has_tuple(space: gym.Space) -> bool:
    if isinstance(space, spaces.Dict):
        return any(map(_has_tuple, space.values()))
    return isinstance(space, spaces.Tuple)


def _space(space: gym.Space) -> gym.Space:
    match space:
        case spaces.Tuple():
            return FromTuple({str(place): _space(part) for place, part in enumerate(space)})
        case spaces.Dict():
            return spaces.Dict({key: _space(part) for key, part in space.items()})
    return space


def in_dicts(obs: Any) -> Any:
    """An observation with dicts in place of tuples."""
    if isinstance(obs, tuple):
        return {str(place): in_dicts(part) for place, part in enumerate(obs)}
    if isinstance(obs, dict):
        return {key: in_dicts(part) for key, part in obs.items()}
    return obs


def _flat(mask: Any) -> np.ndarray:
    """Arrays in tuples, side by side."""
    return np.concatenate([_flat(part) for part in mask]) if isinstance(mask, tuple | list) else np.ravel(mask)
