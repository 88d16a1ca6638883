"""One place in a vector of environments: the outermost layer, in the worker's process where there is one."""

import copy
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlrun.envs import replay, state
from rlrun.envs.replay import Episode
from rlrun.envs.rewards import OwnReward, reward_shape
from rlrun.envs.state import NotSavableError, Tree
from rlrun.errors import reason

LOST = "lost"  # in place of a tree: why there is none


class EnvError(Exception):
    """An environment raised. Holds text only, so that it crosses a process border whatever the cause was."""

    def __init__(self, index: int, reason: str, trace: str = ""):
        super().__init__(index, reason, trace)
        self.index, self.reason = index, reason

    def __str__(self) -> str:
        return f"environment {self.index}: {self.reason}\n{self.args[2]}".strip()


class Form(NamedTuple):
    """What all environments of one batch must agree in."""

    observation_space: gym.Space
    action_space: gym.Space
    reward_shape: tuple[int, ...]


class Slot(gym.Wrapper):
    """Names the environment that raises, fixes its instance seed, and reads and writes its whole state.

    Infos stop here, for they are slow to merge and to send, but for two things about an episode that ended: whether it
    was a success, and what the environment itself paid, where a wrapper keeps the sum.
    """

    SHOWS = ("advance", "start")  # methods that return an observation before what else they return

    def __init__(self, make: Callable[[], gym.Env], index: int, instance_seed: int | None = None):
        super().__init__(make())
        self.make, self.index = make, index
        self.reward_shape = reward_shape(self.env)
        self.options = None if instance_seed is None else {"instance_seed": instance_seed}
        self.recording = False  # whether episodes are recorded, to be saved by the method "replay"
        self.episode: Episode | None = None  # its record; a first one is begun in any case, for it costs nothing
        self.begun = False  # whether there was a reset since `make`
        self.success: bool | None = None  # of the last step; None where the environment does not tell
        self.own_return: np.ndarray | None = None  # [components], of the last step if it ended an episode and is known

    @property
    def form(self) -> Form:
        return Form(self.observation_space, self.action_space, self.reward_shape)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
        except Exception as error:
            raise fault(self.index, error) from error
        ended = terminated or truncated
        self.success = info.get("is_success", info.get("success")) if ended else None
        self.own_return = self._own_return(reward) if ended else None
        if self.episode is not None:
            if self.recording:
                self.episode.add(action, obs)
            else:
                self.episode = None
        return obs, reward, terminated, truncated, {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        before = state.save_before_reset(self.env) if self.recording and self.begun else None
        obs = self._begin(seed, options)
        self.episode = None
        if self.recording or not self.begun:
            self.episode = Episode(before, seed, options)
            self.episode.obs = obs
        self.begun = True
        return obs, {}

    def advance(self, action: Any) -> tuple[Any, tuple[Any, ...]]:
        """A step, and a reset where it ends the episode.

        Returns (obs to act on next, (reward, terminated, truncated, final, success, own_return)). `final` is the last
        observation of an episode that ended, else None; `success` and `own_return` are what is known of that episode.
        """
        obs, reward, terminated, truncated, _ = self.step(action)
        if not (terminated or truncated):
            return obs, (reward, terminated, truncated, None, None, None)
        final, told = copy.deepcopy(obs), (self.success, self.own_return)  # the reset may write where obs is
        return self.reset()[0], (reward, terminated, truncated, final, *told)

    def start(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, None]:
        """A reset in the form of `advance`."""
        return self.reset(seed=seed, options=options)[0], None

    def record(self) -> None:
        """From now on, for the method "replay"."""
        self.recording = True

    def save(self) -> Tree:
        """The state of everything below this layer, or how to get there."""
        if not self.recording:
            return state.save(self.env)
        try:
            return self.episode.save() if self.episode else {LOST: replay.NOT_RECORDED}
        except NotSavableError as error:
            return {LOST: str(error)}

    def load(self, tree: Tree, patience_s: float) -> str:
        """Put a saved state back. Returns why that was not possible, or nothing: an exception would end a worker."""
        try:
            if LOST in tree:
                return tree[LOST]
            if replay.recorded(tree):
                self._replay(tree, patience_s)
            else:
                if not self.begun:  # environments create attributes at their first reset
                    self.reset(seed=0)
                self.episode = None
                state.restore(self.env, tree)
        except Exception as error:
            return line(error)
        return ""

    def _replay(self, tree: Tree, patience_s: float) -> None:
        self.env.close()
        self.env, self.recording = self.make(), True  # for the episode may be saved once more
        if tree["before"] is not None:
            state.restore(self.env, tree["before"])
        options = state.decode(tree["options"])
        self.episode = Episode(tree["before"], tree["seed"], options)
        self.episode.obs, self.begun = self._begin(tree["seed"], options), True
        replay.play(self, self.episode.obs, tree, patience_s)

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        if seed is not None:  # some environments draw from their own spaces
            for layer in (self.env, self.env.unwrapped):
                layer.action_space.seed(seed)
                layer.observation_space.seed(seed)
        if self.options is not None:
            options = {**(options or {}), **self.options}
        try:
            obs, _ = self.env.reset(seed=seed, options=options)
            check_shown(self.observation_space, obs)
        except Exception as error:
            raise fault(self.index, error) from error
        if recorder := self._recorder():
            recorder.restart()
        return obs

    def _recorder(self) -> OwnReward | None:
        return next((layer for layer in state.layers(self.env) if isinstance(layer, OwnReward)), None)

    def _own_return(self, reward: Any) -> np.ndarray | None:
        """Of the episode; None where it is not kept, or where a wrapper made another number of rewards of it."""
        recorder = self._recorder()
        return recorder.total if recorder and recorder.total.size == np.size(reward) else None


def fault(index: int, error: Exception) -> EnvError:
    """What went wrong, as text; an EnvError as it is. To be called where `error` is handled."""
    return error if isinstance(error, EnvError) else EnvError(index, line(error), traceback.format_exc())


def check_shown(space: gym.Space, obs: Any) -> None:
    """What a reset shows must fit its space, for steps are copied over it unseen. Raises ValueError."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            check_shown(part, obs[key])
        return
    shown = np.asarray(obs)
    if shown.shape != space.shape or not np.can_cast(shown.dtype, np.dtype(space.dtype), "same_kind"):
        raise ValueError(f"it shows {shown.dtype} {shown.shape}, and its space says {space.dtype} {space.shape}")


def line(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, EnvError):
        return error.reason
    return str(error) if isinstance(error, NotSavableError) else reason(error)
