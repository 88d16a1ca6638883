"""Registered wrappers: `env.wrappers.<name>` in a config; the first one is the innermost.

To add a wrapper, write a subclass of `gym.Wrapper` with a `Config`, `@register("wrapper", "<name>")` and
`__init__(self, cfg, env)`, and name its module in `plugins=[module]`. A subclass of `Wrapper` may also declare
`training_only`, or settings that have other values in `evaluation`.

Evaluation reports the original rewards of the environment: wrappers that change rewards affect learning and
`train/return_mean`, but neither `eval/return_mean` nor the output of `rlrun eval`. See `in_evaluation`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
import numpy as np

from rlrun.envs.wrappers.reward_vectors import LinearReward, OwnReward
from rlrun.nested import get, put
from rlrun.settings import NonNegativeInt, PositiveInt, Units, config, register
from rlrun.settings.registry import lookup
from rlrun.types import Info

# Some ends are ends for the agent only, such as a lost life: the game goes on. The infos of such a step hold
# {CONTINUES: True}, and so do the infos of the next reset, unless it began a new episode after all.
CONTINUES = "rlrun.continues"
RESTART = "rlrun.restart"  # option of a reset: begin a new episode even if the current one could go on


class Wrapper(gym.Wrapper):
    """Base of wrappers that differ in evaluation. It stands first: `class Mine(Wrapper, gym.RewardWrapper)`."""

    # left out of evaluation; such a wrapper must not change the spaces or the shape of rewards
    training_only: ClassVar[bool] = False
    evaluation: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # settings that have other values in evaluation


@register("wrapper", "frame_stack")
class FrameStack(gym.Wrapper):
    """Joins the last `stack` observations to one, oldest first: in a new first dimension [stack, ...], or along `axis`.

    fields: dotted paths of the entries of a Dict whose frames are joined; []: the observation is a Box. At the start of
    an episode the first observation is repeated. A replay buffer may store each frame once and stack frames again when
    it samples (`Spec.frame_stack`). With `axis` or `fields`, it stores whole stacks: `stack` times the memory.
    """

    @config
    class Config:
        stack: Units
        axis: int | None = None
        fields: list[str] = []  # noqa: RUF012

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        self.stack, self.axis = cfg.stack, cfg.axis
        self.paths = [tuple(field.split(".")) for field in cfg.fields] or [()]
        self.observation_space = env.observation_space
        self.frames: list[np.ndarray] = []  # of each path, [stack, ...]
        for path in self.paths:
            self.observation_space = with_leaf(self.observation_space, path, self._stacked)

    def _stacked(self, space: gym.Space) -> gym.spaces.Box:
        """Returns the space of joined frames of a Box. Raises ValueError for another space."""
        if not isinstance(space, gym.spaces.Box):
            raise ValueError(f"frame_stack needs Box observations, got {type(space).__name__}")
        dims = len(space.shape)
        if self.axis is not None and not -dims <= self.axis < dims:
            raise ValueError(f"frame_stack: axis={self.axis}: must be from {-dims} to {dims - 1} for {space}")
        self.frames.append(np.zeros((self.stack, *space.shape), space.dtype))
        low, high = (self._joined(np.repeat(bound[None], self.stack, axis=0)) for bound in (space.low, space.high))
        return gym.spaces.Box(low, high, dtype=space.dtype.type)

    def _joined(self, frames: np.ndarray) -> np.ndarray:
        """Returns frames [stack, ...] as one observation."""
        if self.axis is None:
            return frames
        return np.concatenate(list(frames), axis=self.axis)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[object, Info]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.frames = [np.repeat(get(obs, path)[None], self.stack, axis=0) for path in self.paths]
        return self.observation(obs), info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        # new arrays: earlier stacks stay as they were
        newest = [get(obs, path)[None] for path in self.paths]
        self.frames = [np.concatenate([old[1:], new]) for old, new in zip(self.frames, newest, strict=True)]
        return self.observation(obs), reward, terminated, truncated, info

    def observation(self, obs: object) -> object:
        """Returns the observation with the joined frames in place of the newest."""
        for path, frames in zip(self.paths, self.frames, strict=True):
            obs = put(obs, path, self._joined(frames))  # type: ignore[arg-type]  # of arrays in place of tensors
        return obs


def with_leaf(
    space: gym.Space, path: tuple[str, ...], change: Callable[[gym.Space], gym.Space], field: str = ""
) -> gym.Space:
    """Returns a space in which the entry at a path is changed. Raises ValueError if there is no such entry.

    field: the whole path, for messages.
    """
    if not path:
        return change(space)
    field = field or ".".join(path)
    if not isinstance(space, gym.spaces.Dict) or path[0] not in space.spaces:
        raise ValueError(f"frame_stack: fields: the observations {space} have no entry {field}")
    changed = with_leaf(space[path[0]], path[1:], change, field)
    return gym.spaces.Dict({**space.spaces, path[0]: changed})


@register("wrapper", "time_limit")
class TimeLimit(gym.wrappers.TimeLimit):
    """Truncates episodes after `max_steps`. The environment's own time limit, if it has one, stays in force.

    An episode of an Atari game is a whole game: a lost life does not restart the count.
    """

    @config
    class Config:
        max_steps: PositiveInt

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env, cfg.max_steps)
        self.cuts = False  # whether the last step reached the limit, and the game could go on after it

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[object, Info]:
        if self.cuts:
            options = {**(options or {}), RESTART: True}
        elapsed = self._elapsed_steps
        obs, info = super().reset(seed=seed, options=options)
        self.cuts = False
        if info.get(CONTINUES):
            self._elapsed_steps = elapsed
        return obs, info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        obs, reward, terminated, truncated, info = super().step(action)
        self.cuts = truncated and info.get(CONTINUES, False)
        return obs, reward, terminated, truncated, info


@register("wrapper", "rescale_action")
class RescaleAction(gym.wrappers.RescaleAction):
    """Gives a Box of actions the bounds `low` and `high`, which are mapped affinely to those of the environment.

    Agents act in [-1, 1] in any case; the new bounds are those of data sets, of `Policy` and of outer wrappers.
    """

    @config
    class Config:
        low: float
        high: float

    def __init__(self, cfg: Config, env: gym.Env):
        space = env.action_space
        if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
            raise ValueError(f"rescale_action needs Box actions with finite bounds, got {space}")
        if cfg.low >= cfg.high:
            raise ValueError(f"rescale_action: low={cfg.low} must be below high={cfg.high}")
        low = np.full(space.shape, cfg.low, space.dtype)
        high = np.full(space.shape, cfg.high, space.dtype)
        super().__init__(env, low, high)


@register("wrapper", "flatten")
class Flatten(gym.wrappers.FlattenObservation):
    """Turns any observation into one vector: joins parts of tuples and dicts, one-hot encodes discrete parts."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)


@register("wrapper", "hide")
class Hide(gym.ObservationWrapper):
    """Removes `entries` from observations: names of entries of a Dict, or positions in a Tuple or vector, from 0."""

    @config
    class Config:
        entries: list[NonNegativeInt | str]

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        space: Any = env.observation_space
        entries: list[Any]
        match space:
            case gym.spaces.Dict():
                entries = list(space)
            case gym.spaces.Tuple():
                entries = list(range(len(space)))
            case gym.spaces.Box(shape=(size,)):
                entries = list(range(size))
            case _:
                raise ValueError(f"hide needs Dict, Tuple or one-dimensional Box observations, got {space}")
        missing = [entry for entry in cfg.entries if entry not in entries]
        self.shown = [entry for entry in entries if entry not in cfg.entries]
        if missing or not self.shown:
            there = f"0 to {len(entries) - 1}"
            if isinstance(space, gym.spaces.Dict):
                there = ", ".join(entries)
            raise ValueError(f"hide: entries={cfg.entries}: must be among {there}, and at least one entry must remain")
        self.observation_space = self._without_hidden(space)

    def _without_hidden(self, space: Any) -> gym.Space:
        match space:
            case gym.spaces.Dict():
                return gym.spaces.Dict({entry: space[entry] for entry in self.shown})
            case gym.spaces.Tuple():
                return gym.spaces.Tuple([space[entry] for entry in self.shown])
        return gym.spaces.Box(space.low[self.shown], space.high[self.shown], dtype=space.dtype)

    def observation(self, observation: Any) -> object:
        match observation:
            case dict():
                return {entry: observation[entry] for entry in self.shown}
            case tuple():
                return tuple(observation[entry] for entry in self.shown)
        return observation[self.shown]


@register("wrapper", "discretize")
class Discretize(gym.ObservationWrapper):
    """Turns a Box observation into one integer: each dimension is divided into `bins` equal bins between its bounds.

    Values outside the bounds fall into the first or last bin. `low` and `high` [dimensions] replace the bounds of the
    space, for example if these are infinite; null keeps the bounds of the space.
    """

    @config
    class Config:
        bins: Units
        low: list[float] | None
        high: list[float] | None

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box):
            raise ValueError(f"discretize needs Box observations, got {type(space).__name__}")
        self.low = space.low.ravel().astype(np.float64)
        self.high = space.high.ravel().astype(np.float64)
        if cfg.low is not None:
            self.low = np.asarray(cfg.low, np.float64)
        if cfg.high is not None:
            self.high = np.asarray(cfg.high, np.float64)
        if self.low.shape != self.high.shape or self.low.size != np.prod(space.shape):
            raise ValueError(f"discretize: low and high need one number for each of {np.prod(space.shape)} dimensions")
        if not np.isfinite([self.low, self.high]).all() or (self.low >= self.high).any():
            raise ValueError("discretize: observations have no bounds; give low and high")
        self.bins = cfg.bins
        self.place = cfg.bins ** np.arange(self.low.size)  # place values of the dimensions in the integer
        self.observation_space = gym.spaces.Discrete(cfg.bins**self.low.size)

    def observation(self, observation: Any) -> int:
        share = (np.ravel(observation) - self.low) / (self.high - self.low)
        bins = np.clip((share * self.bins).astype(int), 0, self.bins - 1)
        return int(bins @ self.place)


def in_evaluation(wrappers: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """Returns the wrappers for evaluation: those that are not training_only, with their settings for evaluation.

    `own_reward` is added as the innermost, unless no wrapper could change a reward. If `linear_reward` is among them,
    `own_reward` goes directly around it, because evaluation then reports the weighted sum that it computes.
    """
    kept = {}
    for name, settings in wrappers.items():
        wrapper = lookup("wrapper", name)
        if not is_training_only(wrapper):
            kept[name] = settings | _for_evaluation(wrapper)
    if kept.keys() <= {"time_limit"}:  # nothing that could change a reward
        return kept
    names = list(kept)
    start = 0
    if LinearReward.registered in kept:
        start = names.index(LinearReward.registered) + 1
    names.insert(start, OwnReward.registered)
    return {name: kept.get(name, {}) for name in names}


def is_training_only(wrapper: object) -> bool:
    """Returns whether a registered wrapper is left out of evaluation."""
    return isinstance(wrapper, type) and issubclass(wrapper, Wrapper) and wrapper.training_only


def _for_evaluation(wrapper: object) -> dict[str, object]:
    """Returns the settings of a registered wrapper that have other values in evaluation."""
    if isinstance(wrapper, type) and issubclass(wrapper, Wrapper):
        return dict(wrapper.evaluation)
    return {}
