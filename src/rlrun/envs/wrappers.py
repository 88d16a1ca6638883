"""Registered wrappers: `env.wrappers.<name>` in a config, applied innermost first."""

from typing import Any

import gymnasium as gym
import numpy as np

from rlrun.config.schema import NonNegativeInt, PositiveInt, Units, config
from rlrun.envs.rewards import reward_shape
from rlrun.registry import register


@register("wrapper", "frame_stack")
class FrameStack(gym.Wrapper):
    """The last `stack` observations as one, [stack, ...], oldest first. An episode starts with its first one repeated.

    A replay buffer may store each frame once and stack again when it samples: `VectorEnv.frame_stack` says so.
    """

    @config
    class Config:
        stack: Units

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        self.stack = cfg.stack
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box):
            raise ValueError(f"frame_stack needs Box observations, got {type(space).__name__}")
        low, high = (np.repeat(bound[None], cfg.stack, axis=0) for bound in (space.low, space.high))
        self.observation_space = gym.spaces.Box(low, high, dtype=space.dtype)
        self.frames = np.zeros((cfg.stack, *space.shape), space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.frames = np.repeat(obs[None], self.stack, axis=0)
        return self.frames, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.frames = np.concatenate([self.frames[1:], obs[None]])  # a new array: earlier stacks stay as they were
        return self.frames, reward, terminated, truncated, info


@register("wrapper", "time_limit")
class TimeLimit(gym.wrappers.TimeLimit):
    """Truncates episodes after `max_steps`, whatever limit they have of their own."""

    @config
    class Config:
        max_steps: PositiveInt

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env, cfg.max_steps)


@register("wrapper", "atari")
class Atari(gym.wrappers.AtariPreprocessing):
    """Gymnasium's preprocessing: no-op starts, frames skipped and max-pooled, resized, grey."""

    @config
    class Config:
        noop_max: NonNegativeInt
        frame_skip: PositiveInt
        screen_size: Units
        terminal_on_life_loss: bool

    def __init__(self, cfg: Config, env: gym.Env):
        if not hasattr(env.unwrapped, "ale"):
            raise ValueError("env.wrappers.atari is for Atari environments only")
        super().__init__(
            env,
            noop_max=cfg.noop_max,
            frame_skip=cfg.frame_skip,
            screen_size=cfg.screen_size,
            terminal_on_life_loss=cfg.terminal_on_life_loss,
            grayscale_obs=True,
        )


@register("wrapper", "flatten")
class Flatten(gym.wrappers.FlattenObservation):
    """Any observation space as one vector: tuples and dicts joined, discrete parts one-hot."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)


@register("wrapper", "hide")
class Hide(gym.ObservationWrapper):
    """Vector observations without some of their `entries`, counted from 0: what is hidden must be remembered."""

    @config
    class Config:
        entries: list[NonNegativeInt]

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"hide needs Box observations of one dimension, got {space}")
        missing = [entry for entry in cfg.entries if entry >= space.shape[0]]
        self.shown = [entry for entry in range(space.shape[0]) if entry not in cfg.entries]
        if missing or not self.shown:
            raise ValueError(f"hide: entries={cfg.entries} of {space.shape[0]}, counted from 0; one must stay")
        self.observation_space = gym.spaces.Box(space.low[self.shown], space.high[self.shown], dtype=space.dtype)

    def observation(self, observation: Any) -> Any:
        return observation[self.shown]


@register("wrapper", "discretize")
class Discretize(gym.ObservationWrapper):
    """Box observations as one number: each dimension cut into `bins` equal parts between its bounds.

    What lies outside the bounds falls into the first or last part. `low` and `high` [dimensions] stand in for bounds
    that the space does not have; null: the space's own.
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
        self.low, self.high = (
            np.asarray(own.ravel() if given is None else given, np.float64)
            for given, own in ((cfg.low, space.low), (cfg.high, space.high))
        )
        if self.low.shape != self.high.shape or self.low.size != np.prod(space.shape):
            raise ValueError(f"discretize: low and high need one number for each of {np.prod(space.shape)} dimensions")
        if not np.isfinite([self.low, self.high]).all() or (self.low >= self.high).any():
            raise ValueError("discretize: observations have no bounds; give low and high")
        self.bins, self.place = cfg.bins, cfg.bins ** np.arange(self.low.size)
        self.observation_space = gym.spaces.Discrete(cfg.bins**self.low.size)

    def observation(self, observation: Any) -> int:
        share = (np.ravel(observation) - self.low) / (self.high - self.low)
        return int(np.clip((share * self.bins).astype(int), 0, self.bins - 1) @ self.place)


@register("wrapper", "linear_reward")
class LinearReward(gym.Wrapper):
    """One reward of several, each times its weight: for algorithms that take one number."""

    reward_space = None  # whatever is within

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
