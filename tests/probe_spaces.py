"""One task in many spaces: each part of the observation encodes a bit, and each part of the action should repeat it."""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from rlrun.envs.stepping.actions import leaves, nested, values
from rlrun.types import MASK, Info

IMAGE = Box(0, 255, (1, 36, 36), np.uint8)
NUMBERS = Box(-1.0, 1.0, (2,), np.float32)

OBSERVATIONS: dict[str, Space] = {
    "box": NUMBERS,
    "number": Box(-1.0, 1.0, (), np.float64),
    "matrix": Box(-2.0, 2.0, (2, 2), np.float32),
    "integers": Box(-3, 3, (2,), np.int64),
    "bytes": Box(0, 255, (4, 4), np.uint8),
    "image": IMAGE,
    "image_last": Box(0, 255, (36, 36, 3), np.uint8),
    "discrete": Discrete(2, start=3),
    "multi_discrete": MultiDiscrete(np.array([[2, 3], [3, 2]])),
    "multi_binary": MultiBinary((2, 2)),
    "dict": Dict({"camera": IMAGE, "touch": Dict({"left": Discrete(2), "right": NUMBERS})}),
    "tuple": Tuple([Discrete(2), Tuple([NUMBERS, IMAGE])]),
}

ACTIONS: dict[str, Space] = {
    "discrete": Discrete(3, start=1),
    "multi_discrete": MultiDiscrete(np.array([[2], [3]])),
    "multi_binary": MultiBinary((1, 2)),
    "box": Box(-2.0, 2.0, (2, 1), np.float32),
    "unbounded_box": Box(-np.inf, np.inf, (2,), np.float64),
    "integer_box": Box(0, 4, (2,), np.int32),
    "tuple": Tuple([Box(-1.0, 3.0, (2,), np.float64), Discrete(3, start=1)]),
    "dict": Dict({"gear": MultiDiscrete([2, 3]), "arm": Tuple([MultiBinary(1), Box(-2, 2, (), np.float32)])}),
}


REWARDS: dict[str, Space | None] = {"number": None, "vector": Box(0.0, 1.0, (2,), np.float64)}


class Spaces(gym.Env):
    """Episodes of one step. The reward is the fraction of the action's parts that are right.

    For bit 0 the right choice of each part is the first, for bit 1 the second; in a Box of floats they are -1 and 1, in
    a Box of integers 1 and 2. In a Box the reward is 1 minus the mean distance from the right action, each at most 1.
    The reward of a Tuple or Dict is the mean over its parts. masks: "info" or "obs", where an action mask is given, or
    None. The mask forbids some of the wrong actions; a forbidden action raises ValueError. reward: with "vector", the
    rewards are the reward and 1 minus the reward. The right choice of a Discrete action is reported as `label`, from 0.
    """

    def __init__(
        self, observation: str = "box", action: str = "discrete", masks: str | None = None, reward: str = "number"
    ):
        self.reward_space = REWARDS[reward]
        self.shown, self.action_space, self.masks = OBSERVATIONS[observation], ACTIONS[action], masks
        self.observation_space: Space = self.shown
        if masks == "obs":
            size = sum(int(sum(_sizes(space))) for _, space in leaves(self.action_space))
            self.observation_space = Dict({"seen": self.shown, MASK: Box(0, 1, (size,), np.int8)})
        self.reports: dict[str, Space] = {}
        if isinstance(self.action_space, Discrete):
            self.reports = {"label": Discrete(int(self.action_space.n))}
        self.bit = 0

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[object, Info]:
        super().reset(seed=seed)
        return self._begin()

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        distances = []
        for (_, space), part, mask in zip(*self._parts(action), strict=True):
            if mask is not None and not _allowed(space, part, mask):
                raise ValueError(f"action {action} is forbidden by {self.mask}")
            distances.append(float(np.abs(_right(space, self.bit) - np.asarray(part)).clip(0, 1).mean()))
        wrong = float(np.mean(distances))
        reward: Any = 1.0 - wrong
        if self.reward_space is not None:
            reward = np.array([1.0 - wrong, wrong])
        label = self.bit
        obs, info = self._begin()
        if self.reports:
            info["label"] = label
        return obs, reward, True, False, info

    def _begin(self) -> tuple[object, Info]:
        self.bit = int(self.np_random.integers(2))
        obs, info = _show(self.shown, self.bit), {}
        if self.masks:
            self.mask = self._draw_mask()
            if self.masks == "info":
                info[MASK] = self.mask
            else:
                masks = zip(leaves(self.action_space), values(self.action_space, self.mask), strict=True)
                obs = {"seen": obs, MASK: np.concatenate([_flat(space, mask) for (_, space), mask in masks])}
        return obs, info

    def _parts(self, action: object) -> tuple[Any, Any, Any]:
        """Returns three lists, with (name, space), value and mask of every part of an action. A mask may be None."""
        space = self.action_space
        masks = [None for _ in leaves(space)]
        if self.masks:
            masks = [*values(space, self.mask)]
        return [*leaves(space)], [*values(space, action)], masks

    def _draw_mask(self) -> object:
        """Returns an action mask in the form that `Space.sample` of the action space takes."""
        return nested(self.action_space, (self._mask_of(part) for _, part in leaves(self.action_space)))

    def _mask_of(self, space: Space) -> Any:
        if isinstance(space, Box):
            return None
        if isinstance(space, MultiBinary):
            return np.full(space.shape, 2 * self.bit, np.int8)  # for bit 0 only 0 is allowed, for bit 1 both
        masks = []
        for size in _sizes(space):
            wrong = [choice for choice in range(size) if choice != self.bit]
            mask = np.ones(size, np.int8)
            mask[self.np_random.choice(wrong)] = 0
            masks.append(mask)
        if isinstance(space, Discrete):
            return masks[0]
        return tuple(masks)


def _right(space: Space, bit: int) -> object:
    """Returns the right value of a part of the action."""
    if isinstance(space, Box):
        if space.dtype.kind == "i":
            return bit + 1
        return 2 * bit - 1
    return getattr(space, "start", 0) + bit


def _sizes(space: Any) -> Any:
    """Returns the number of choices of every dimension of a space; a Box has none."""
    match space:
        case Discrete():
            return [space.n]
        case MultiBinary():
            return np.full(space.shape, 2).ravel()
        case Box():
            return []
    return space.nvec.ravel()


def _flat(space: Space, mask: Any) -> np.ndarray:
    """Returns the mask of a part of the action as one vector: for every choice of every dimension, 1 if allowed."""
    if isinstance(space, Box):
        return np.zeros(0, np.int8)
    if isinstance(space, MultiBinary):
        return np.stack([mask != 1, mask != 0], -1).ravel().astype(np.int8)
    if isinstance(mask, tuple):
        return np.concatenate(mask)
    return mask


def _allowed(space: Space, action: Any, mask: np.ndarray) -> bool:
    match space:
        case Discrete():
            return bool(mask[action - space.start])
        case MultiDiscrete():
            return all(part[choice] for part, choice in zip(mask, np.ravel(action), strict=True))
    return not (mask == 1 - action).any()


def _show(space: Space, bit: int) -> Any:
    """Returns an observation that encodes the bit in every part."""
    match space:
        case Dict():
            return {key: _show(part, bit) for key, part in space.items()}
        case Tuple():
            return tuple(_show(part, bit) for part in space)
        case Discrete():
            return space.start + bit
        case Box() if space.dtype != np.uint8:
            return np.full(space.shape, 2 * bit - 1, space.dtype)
        case Box():
            return np.full(space.shape, 255 * bit, space.dtype)
    return np.full(space.shape, bit, space.dtype)
