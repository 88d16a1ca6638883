"""Adapts observations to the form that rlrun uses: nested dicts, with the action mask as an entry.

Tuples become dicts with the keys "0", "1", ... An action mask, from `info["action_mask"]`, from an entry of the
observation or from the method `action_masks()`, becomes the entry `types.MASK`.
"""

from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlrun.envs.stepping.actions import leaves, nested, values
from rlrun.envs.stepping.returned import ReturnedError
from rlrun.errors import ConfigError
from rlrun.types import MASK, Info

METHOD = "action_masks"  # the method that MaskablePPO of sb3-contrib calls
LATE_MASK = (
    f"its infos have an {MASK}, but those of its first reset had none: every reset must return one, all 1 if all "
    f"actions are allowed; env.{MASK}=false ignores masks"
)


class FromTuple(spaces.Dict):
    """A Tuple space as a Dict with the keys "0", "1", ...; it is printed as the original Tuple."""

    def __repr__(self) -> str:
        return f"Tuple({', '.join(repr(self[key]) for key in sorted(self.spaces, key=int))})"


class WithMask(spaces.Dict):
    """A Dict of a mask and an observation that was not a Dict; it is printed as the original space."""

    def __repr__(self) -> str:
        return f"{self['obs']} with action masks (env.action_mask=false leaves these out)"


class ObsAdapter(gym.Wrapper):
    """Adapts the observations of an environment. masked: whether it has action masks, as `shows_masks` finds out."""

    def __init__(self, env: gym.Env, masked: bool):
        super().__init__(env)
        space = tuples_as_dicts(env.observation_space)
        entries = {"obs": space}
        if isinstance(space, spaces.Dict):
            entries = dict(space.spaces)
        self.masked = masked or (MASK in entries and bool(_sizes(env.action_space)))
        self.bare = not isinstance(space, spaces.Dict)  # if so, {"obs": observation} is made to hold a mask
        if self.masked:
            entries[MASK] = spaces.MultiBinary(sum(_sizes(env.action_space)))
            space = spaces.Dict(entries)
            if self.bare:
                space = WithMask(entries)
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[object, Info]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._adapted(obs, info), info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._adapted(obs, info, bool(terminated)), reward, terminated, truncated, info

    def _adapted(self, obs: object, info: Info, terminated: bool = False) -> Any:
        value = in_dicts(obs)
        if not self.masked:
            return value
        mask = info.get(MASK)
        if mask is None and isinstance(obs, dict):
            mask = obs.get(MASK)
        if mask is None and not terminated:
            method = mask_method(self.env)
            if method is not None:
                mask = method()
        if self.bare:
            value = {"obs": value}
        return value | {MASK: read_mask(self.env.action_space, mask, terminated)}


def adapt_observations(env: gym.Env, masked: bool) -> gym.Env:
    """Returns `env` in an ObsAdapter, or `env` itself if there is nothing to adapt."""
    space = env.observation_space
    has_mask = isinstance(space, spaces.Dict) and MASK in space.spaces
    if masked or has_mask or tuples_as_dicts(space) != space:
        return ObsAdapter(env, masked)
    return env


def as_tensors(space: gym.Space, entry: str | None = None) -> gym.Space:
    """Returns the space of observations as tensors: boxes become float32 unless they are float32 or uint8 already.

    entry: the top-level key of the observation under which this space lies; None for the whole observation. Raises
    ConfigError for spaces without a fixed shape, and for observations without entries.
    """
    if entry is None and not _has_entries(space):
        raise ConfigError(f"env: {space} observations have no entries; return a constant, such as one number")
    if isinstance(space, spaces.Dict):
        kind = spaces.Dict
        if isinstance(space, FromTuple | WithMask):
            kind = type(space)
        return kind({key: as_tensors(part, entry or key) for key, part in space.items()})
    if isinstance(space, spaces.Box) and space.dtype not in (np.float32, np.uint8):
        with np.errstate(over="ignore"):  # bounds beyond the range of float32 become infinite
            return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        name = type(space).__name__
        hint = "; wrap the environment so that it returns a Box, for example of embeddings"
        if entry:
            hint = f"; env.wrappers.hide.entries=[{entry}] leaves this one out"
        raise ConfigError(f"env: {name} observations are not supported: they have no fixed shape{hint}")
    return space


def _has_entries(space: gym.Space) -> bool:
    """Returns whether a space is or holds another space than a Dict."""
    return not isinstance(space, spaces.Dict) or any(map(_has_entries, space.spaces.values()))


def shows_masks(env: gym.Env) -> bool:
    """Returns whether an environment has a method for action masks, or infos that hold one.

    Resets the environment to read its infos, unless it has the method, or its actions have no discrete part: a mask is
    about discrete parts only.
    """
    if not _sizes(env.action_space):
        return False
    return mask_method(env) is not None or MASK in env.reset(seed=0)[1]


def ignores_masks(env: gym.Env) -> bool:
    """Returns whether an action mask in infos would not be used, although the actions have a discrete part."""
    return bool(_sizes(env.action_space)) and not (isinstance(env, ObsAdapter) and env.masked)


def mask_method(env: gym.Env) -> Callable[[], object] | None:
    """Returns the method of an environment or a wrapper that returns the current action mask, None if there is none."""
    try:
        method = env.get_wrapper_attr(METHOD)
    except AttributeError:
        return None
    if callable(method):
        return method  # type: ignore[no-any-return]
    return None


def read_mask(space: gym.Space, mask: object, may_be_empty: bool = False) -> np.ndarray:
    """Returns a mask as one vector [choices].

    mask: flat, or in the form that `Space.sample` takes; None allows everything. may_be_empty: whether it may allow no
    action, as after the end of an episode. Raises ReturnedError for other sizes and for numbers other than 0 and 1.
    """
    if isinstance(space, spaces.Tuple | spaces.Dict) and not isinstance(mask, np.ndarray | None):
        parts = zip(leaves(space), values(space, mask), strict=True)
        return np.concatenate([_mask_of(part, value, may_be_empty) for (_, part), value in parts])
    return _mask_of(space, mask, may_be_empty)


def sample(space: gym.Space, obs: object) -> Any:
    """Returns a random action that the mask in an adapted observation allows."""
    if not (_sizes(space) and isinstance(obs, dict) and MASK in obs):
        return space.sample()
    masks = iter(np.split(obs[MASK], np.cumsum(_sizes(space))[:-1]))
    drawn = []
    for _, part in leaves(space):
        if isinstance(part, spaces.Box):
            drawn.append(part.sample())
        else:
            drawn.append(_sampled(part, [next(masks) for _ in _sizes(part)]))
    return nested(space, iter(drawn))


def _sampled(space: Any, masks: list[np.ndarray]) -> Any:
    """Returns a random action of a discrete space. masks: one for each of its dimensions."""
    drawn = []
    for mask in masks:
        drawn.append(space.np_random.choice(np.flatnonzero(mask)))
    return (np.reshape(drawn, space.shape) + getattr(space, "start", 0)).astype(space.dtype)


def _mask_of(space: gym.Space, mask: object, may_be_empty: bool) -> np.ndarray:
    """Does the work of `read_mask` for a mask that is one array, or nested lists."""
    sizes = _sizes(space)
    if mask is None:
        return np.ones(sum(sizes), np.int8)
    flat = _flat(mask)
    # Gymnasium's form for MultiBinary: per bit 0 or 1 for the only allowed value, 2 if both are allowed
    if isinstance(space, spaces.MultiBinary) and 2 * len(flat) == sum(sizes):
        if not np.isin(flat, (0, 1, 2)).all():
            raise ReturnedError(f"{MASK} of {space} is {flat}, not of 0, 1 (the only allowed value) and 2 (both)")
        flat = np.stack([flat != 1, flat != 0], -1).ravel()
    if len(flat) != sum(sizes):
        raise ReturnedError(f"{MASK} has {len(flat)} entries, {space} has {sum(sizes)} choices")
    allowed = flat.astype(bool)
    wrong = allowed != flat
    if np.count_nonzero(wrong):
        index = int(np.argmax(wrong))
        raise ReturnedError(f"{MASK}[{index}] is {flat[index]}; a mask has 1 for allowed choices and 0 for others")
    if sizes and not may_be_empty:
        possible = allowed
        if len(sizes) > 1:  # for each dimension, whether any of its choices is allowed
            possible = np.logical_or.reduceat(allowed, np.cumsum([0, *sizes[:-1]]))
        if np.count_nonzero(possible) < len(sizes):
            raise ReturnedError(f"{MASK} allows no action, but the episode is not terminated")
    return allowed.astype(np.int8)


def _sizes(space: gym.Space) -> list[int]:
    """Returns the number of choices in every discrete dimension of an action: 2 for each bit, nothing for a Box."""
    match space:
        case spaces.Discrete():
            return [int(space.n)]
        case spaces.MultiDiscrete():
            return [int(n) for n in space.nvec.flat]
        case spaces.MultiBinary():
            return [2] * int(np.prod(space.shape))
        case spaces.Tuple() | spaces.Dict():
            return [size for _, part in leaves(space) for size in _sizes(part)]
    return []


def tuples_as_dicts(space: gym.Space) -> gym.Space:
    """Returns a space with its Tuples as Dicts with the keys "0", "1", ..."""
    match space:
        case spaces.Tuple():
            return FromTuple({str(index): tuples_as_dicts(part) for index, part in enumerate(space)})
        case spaces.Dict():
            return spaces.Dict({key: tuples_as_dicts(part) for key, part in space.items()})
    return space


def in_dicts(obs: object) -> Any:
    """Returns an observation with its tuples as dicts with the keys "0", "1", ..."""
    if isinstance(obs, tuple):
        return {str(index): in_dicts(part) for index, part in enumerate(obs)}
    if isinstance(obs, dict):
        return {key: in_dicts(part) for key, part in obs.items()}
    return obs


def _flat(mask: Any) -> np.ndarray:
    """Returns nested tuples or lists of arrays as one vector."""
    if isinstance(mask, tuple | list):
        return np.concatenate([_flat(part) for part in mask])
    return np.ravel(mask)
