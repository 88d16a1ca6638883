"""Defines the action space of the agent, and converts actions between the agent's and the environment's units."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlrun.errors import ConfigError
from rlrun.spaces import JoinedBox, JoinedChoices, MixedSpace, choices, columns

LOW, HIGH = np.float32(-1), np.float32(1)
# how far a recorded action may be from the bounds, if these are equal; relative to the bounds if they are above 1
ROUNDING = 1e-6


class Actions:
    """Converts actions between the units of the agent and those of the environment.

    For the agent, a bounded Box has the range [-1, 1] in every dimension, and discrete actions count from 0. Except for
    Discrete, an action of the agent is a vector, whatever its shape in the environment.
    """

    def __init__(self, space: gym.Space):
        self.native: Any = space
        self.space: Any = space  # the agent's action space
        self.bounds: tuple[Any, Any] | None = None  # (low, high) in the agent's units
        self.scale: Any = None  # native = action * scale + offset; None: a scale of 1, an offset of 0
        self.offset: Any = None
        match space:
            case spaces.Box():
                self._box(space)
            case spaces.Discrete():
                if space.start:
                    self.offset = space.start
                self.space = spaces.Discrete(space.n)
            case spaces.MultiDiscrete():
                if space.start.any():
                    self.offset = space.start.ravel()
                self.space = spaces.MultiDiscrete(space.nvec.ravel())
            case spaces.MultiBinary():
                self.space = spaces.MultiBinary(int(np.prod(space.shape)))
            case _:
                raise ConfigError(
                    f"env: {type(space).__name__} action spaces are not supported: they have no fixed shape; wrap the "
                    "environment so that its actions are a Box, Discrete, MultiDiscrete, MultiBinary, Tuple or Dict"
                )

    def _box(self, space: spaces.Box) -> None:
        low = space.low.astype(np.float64).ravel()
        high = space.high.astype(np.float64).ravel()
        if not np.isfinite([low, high]).all():
            self.bounds = (low.astype(np.float32), high.astype(np.float32))
            self.space = spaces.Box(*self.bounds, dtype=np.float32)
            return
        self.bounds = (LOW, HIGH)
        self.space = spaces.Box(-1.0, 1.0, low.shape, np.float32)
        if (low != -1).any() or (high != 1).any():
            self.scale, self.offset = high / 2 - low / 2, high / 2 + low / 2  # as halves, because a sum may overflow

    @property
    def log_scale(self) -> float:
        """The sum of log(scale): what a log-density in the agent's units exceeds that in the environment's units by."""
        if self.scale is None:
            return 0.0
        return float(np.log(self.scale[self.scale > 0]).sum())

    def clip(self, actions: np.ndarray) -> np.ndarray:
        """Returns a copy of actions [num_envs, ...], clipped to the agent's bounds. NaN stays NaN."""
        if self.bounds is None:
            return actions.copy()
        low, high = self.bounds
        return np.minimum(np.maximum(actions, low), high)

    def to_native(self, actions: np.ndarray) -> Any:
        """Returns clipped actions of the agent in the environment's units, shape and dtype, [num_envs, ...]."""
        if self.scale is not None:
            actions = np.clip(actions * self.scale + self.offset, self.native.low.ravel(), self.native.high.ravel())
        elif self.offset is not None:
            actions = actions + self.offset
        if actions.dtype.kind == "f" and self.native.dtype.kind != "f":
            actions = np.rint(actions)
        actions = actions.astype(self.native.dtype)  # always a copy, because environments may write to their actions
        return actions.reshape(-1, *self.native.shape)

    def from_native(self, actions: Any) -> np.ndarray:
        """Returns the environment's actions [rows, ...] in the agent's units.

        If the two bounds of an entry are equal, this value becomes 0, and any other value lies beyond the agent's
        bounds. Raises ValueError for actions of a wrong shape, and for discrete ones that are not in the native space.
        """
        actions = np.asarray(actions)
        if actions.shape[1:] != self.native.shape:
            raise ValueError(f"actions of shape {actions.shape[1:]}, not {self.native.shape}")
        if not isinstance(self.native, spaces.Box):
            whole = (actions == np.rint(actions)).all()
            if not whole or not all(map(self.native.contains, actions.astype(np.int64))):
                raise ValueError(f"actions that are not in {self.native}")
        actions = actions.reshape(-1, *self.space.shape)
        if self.offset is not None:
            actions = actions - self.offset
        if self.scale is not None:
            rounding = ROUNDING * np.maximum(1.0, np.abs(self.offset))
            actions = actions / np.where(self.scale == 0, rounding, self.scale)
        return actions.astype(self.space.dtype)


class NestedActions(Actions):
    """For the agent, an action of a Tuple or Dict space is one vector: all its choices, then its continuous values.

    The agent's space is a MultiDiscrete if all parts are discrete, a Box if all are Boxes, else a MixedSpace; each
    holds its parts. The environment's actions are tuples and dicts of arrays [num_envs, ...].
    """

    def __init__(self, space: spaces.Tuple | spaces.Dict):
        self.native = space
        self.parts = {name: Actions(leaf) for name, leaf in leaves(space)}
        discrete: dict[str, Any] = {}
        continuous: dict[str, Any] = {}
        for name, part in self.parts.items():
            if isinstance(part.space, spaces.Box):
                continuous[name] = part.space
            else:
                discrete[name] = spaces.MultiDiscrete(choices(part.space))
        if not self.parts:
            raise ConfigError(f"env: the action space {space} has no parts")
        self.bounds = None
        self.columns = columns(discrete | continuous)  # entries of the agent's action that hold each part
        if not continuous:
            self.space = JoinedChoices(discrete)
            return
        self.space = MixedSpace(discrete | continuous) if discrete else JoinedBox(continuous)
        self.bounds = (self.space.low, self.space.high)

    @property
    def log_scale(self) -> float:
        return sum(part.log_scale for part in self.parts.values())

    def to_native(self, actions: np.ndarray) -> Any:
        parts = [part.to_native(actions[:, self.columns[name]]) for name, part in self.parts.items()]
        return nested(self.native, iter(parts))

    def from_native(self, actions: object) -> np.ndarray:
        found = {}
        for (name, part), leaf in zip(self.parts.items(), values(self.native, actions), strict=True):
            found[name] = part.from_native(leaf)
        rows = [found[name].reshape(len(found[name]), -1) for name in self.columns]
        return np.concatenate(rows, 1).astype(self.space.dtype)


def conversion(space: gym.Space) -> Actions:
    """Returns the conversion for the action space of an environment. Raises ConfigError if it is not supported."""
    if 0 in (space.shape or ()):
        raise ConfigError(f"env: the action space {space} has no entries")
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return NestedActions(space)
    return Actions(space)


def leaves(space: gym.Space, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted name, space) of every part of nested Tuple and Dict spaces that is neither, as in "arm.0"."""
    match space:
        case spaces.Tuple():
            entries = [(str(index), part) for index, part in enumerate(space)]
        case spaces.Dict():
            entries = [*space.items()]
        case _:
            yield name, space
            return
    for key, part in entries:
        yield from leaves(part, f"{name}.{key}".lstrip("."))


def values(space: gym.Space, action: Any) -> Iterator[Any]:
    """Yields the value of every part of an action, or of a batch of actions, in the order of `leaves`."""
    match space:
        case spaces.Tuple():
            for part, value in zip(space, action, strict=True):
                yield from values(part, value)
        case spaces.Dict():
            for key, part in space.items():
                yield from values(part, action[key])
        case _:
            yield action


def nested(space: gym.Space, parts: Iterator[object]) -> object:
    """Returns an action, or a batch of actions, with these values of its parts: the inverse of `values`."""
    match space:
        case spaces.Tuple():
            return tuple(nested(part, parts) for part in space)
        case spaces.Dict():
            return {key: nested(part, parts) for key, part in space.items()}
    return next(parts)


def single(space: gym.Space, actions: object, index: int) -> object:
    """Returns the action of one environment out of the environment's actions [num_envs, ...]."""
    return nested(space, (part[index] for part in values(space, actions)))
