"""The outermost wrapper of each single environment in a batch; in a worker or actor with `env.backend=async`, `ray`."""

import copy
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, SupportsFloat, TypedDict

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlrun.core.logged import Logged, take_logged
from rlrun.envs.saving import episode_record, state
from rlrun.envs.saving.episode_record import RecordedEpisode
from rlrun.envs.saving.state import NotSavableError, Tree
from rlrun.envs.stepping import executed, reports
from rlrun.envs.stepping.obs_adapter import LATE_MASK, ignores_masks
from rlrun.envs.stepping.reports import Reports
from rlrun.envs.stepping.returned import SUCCESS, ReturnedError, check_observation, flag, fraction, number
from rlrun.envs.stepping.returned import reward as read_reward
from rlrun.envs.wrappers.hold import HELD, Held, holds
from rlrun.envs.wrappers.reward_vectors import OwnReward, reward_shape
from rlrun.envs.wrappers.wrapper import CONTINUES
from rlrun.errors import nearest, printable
from rlrun.imports import traced
from rlrun.schedules.attribute import Attribute, ScheduledAttributeError
from rlrun.types import MASK, Info

PARAMETERS = "env.schedule"  # key of reset options and of saved states for scheduled attributes: {name: value}
LOST = "lost"  # a tree {LOST: reason} stands for a state that could not be saved


class EnvError(Exception):
    """An environment failed. The error holds only text, so that workers can send it."""

    def __init__(self, index: int, reason: str, trace: str = ""):
        super().__init__(index, reason, trace)
        self.index, self.reason = index, reason

    def __str__(self) -> str:
        return f"environment {self.index}: {self.reason}\n{self.args[2]}".strip()


class Form(NamedTuple):
    """Spaces and kind of rewards, which must be equal in all environments of a batch."""

    observation_space: gym.Space
    action_space: gym.Space
    reward_shape: tuple[int, ...]
    holds: bool  # whether a step may last several steps of the wrapped environment
    reports: Reports


class Kept(TypedDict, total=False):
    """What is kept of the infos of a step. An entry that would say nothing is missing."""

    reports: list[object]  # what the environment declares to report, in the order of `Form.reports`
    held: Held  # for how long an action was held
    executed: object  # the action that it took, if `env.executed_action` names it
    success: float  # 0 to 1
    logged: Logged  # names and numbers that the environment logged
    # of an episode that ended:
    own_return: np.ndarray  # original return, [components], if an OwnReward wrapper computes it
    infos: dict[str, float]  # the entries of its last infos that `env.log_info` names, if it names any
    final_obs: object  # its last observation
    continues: bool  # True if only the agent's episode ended, as with a lost life


Results = tuple[object, SupportsFloat, bool, bool, Kept]
"""A step as Gymnasium returns it: observation, reward, terminated, truncated, infos."""


class EnvSlot(gym.Wrapper):
    """Turns exceptions into EnvErrors, passes the instance seed to resets, and saves and restores the environment.

    Infos are dropped except for those of `Kept`, because they are slow to merge and to send.
    """

    RETURN_OBS = ("advance", "start")  # methods whose first result is an observation

    def __init__(
        self,
        make: Callable[..., gym.Env],
        index: int,
        instance_seed: int | None = None,
        log_info: tuple[str, ...] = (),
        action_mask: bool = False,
        executed_action: str | None = None,
    ):
        """make: returns a new environment; keyword arguments override arguments of its constructor.

        action_mask: refuse action masks in infos that would not be used. executed_action: the entry of infos that is
        the action which the environment took.
        """
        super().__init__(make())
        self.make, self.index, self.log_info = make, index, log_info
        self.executed_action = executed_action
        self.task: dict[str, float] = {}  # constructor arguments of the current task, if `set_task` was called
        self.parameters: dict[str, float] = {}  # attributes to set when the next episode begins
        self.applied: dict[str, float] = {}  # attributes as the current episode has them
        self.reward_shape = reward_shape(self.env)
        self.declared = self.env.observation_space
        self.reports = reports.declared(self.env)
        # dtype and shape of Box observations, which need no further check; None for other spaces
        self.dtype = self.shape = None
        if isinstance(self.declared, spaces.Box):
            self.dtype, self.shape = self.declared.dtype, self.declared.shape
        self.refuses_masks = action_mask and ignores_masks(self.env)
        self.options = None
        if instance_seed is not None:
            self.options = {"instance_seed": instance_seed}
        self.recording = False  # whether episodes are recorded, for the saving method "replay"
        # the record of the current episode; for the first episode it is made even if `recording` is not set yet
        self.episode: RecordedEpisode | None = None
        self.begun = False  # whether the environment has been reset since `make`
        self.absent = set(log_info)  # names that no info of the first episode has held so far
        self.found: set[str] = set()  # all names in these infos
        self.continues = False  # whether the last reset went on with the game, for example after a lost life

    @property
    def form(self) -> Form:
        """The spaces of the environment, the shape of its rewards, whether its steps may hold actions, its reports."""
        return Form(self.observation_space, self.action_space, self.reward_shape, holds(self.env), self.reports)

    def step(self, action: object) -> Results:  # type: ignore[override]  # its infos are typed
        if not self.recording:
            self.episode = None
        elif self.episode is not None:
            self.episode.add(action)  # before the step, in which the environment may write to the action
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
            # three comparisons accept most observations in a third of the time of the whole check
            if type(obs) is not np.ndarray or obs.dtype is not self.dtype or obs.shape != self.shape:
                check_observation(self.declared, obs)
            reward = read_reward(reward, self.reward_shape)
            terminated = flag("its terminated", terminated)
            truncated = flag("its truncated", truncated)
            kept = self._kept(info)
        except (Exception, SystemExit) as error:  # a simulator whose window is closed may call sys.exit
            raise fault(self.index, error) from error
        if terminated or truncated:
            own_return = self._own_return(reward)
            if own_return is not None:
                kept["own_return"] = own_return
            if self.log_info:
                kept["infos"] = dict(self._info_numbers(info))
            if self.absent:
                self._report_absent()
        if self.episode is not None:
            self.episode.obs = obs
        return obs, reward, terminated, truncated, kept

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[object, Info]:
        before = None
        if self.recording and self.begun:
            before = self._with_parameters(state.save_before_reset(self.env))
        if self.parameters:
            options = {**(options or {}), PARAMETERS: self.parameters}
        obs = self._begin(seed, options)
        self.episode = None
        if self.recording or not self.begun:
            self.episode = RecordedEpisode(before, seed, options)
            self.episode.obs = obs
        self.begun = True
        return obs, {}

    def advance(self, action: object) -> Results:
        """Takes a step, and resets the environment if the step ends the episode.

        Returns the observation to act on next, and the other results of the step.
        """
        obs, reward, terminated, truncated, kept = self.step(action)
        if terminated or truncated:
            kept["final_obs"] = copy.deepcopy(obs)  # the reset may write to the memory of obs
            obs = self.reset()[0]
            if self.continues:
                kept["continues"] = True
            if logged := take_logged():
                kept["logged"] = [*kept.get("logged", ()), *logged]
        return obs, reward, terminated, truncated, kept

    def start(self, seed: int | None, options: dict[str, object] | None) -> tuple[object, Info]:
        """Resets the environment."""
        return self.reset(seed=seed, options=options)

    def set_task(self, task: dict[str, float]) -> None:
        """Makes the environment again, with other constructor arguments. It must be reset before the next step.

        Raises EnvError if its spaces, its reward shape or its reports change.
        """
        form = self.form
        self.env.close()
        self.task = task
        self.env = self.make(**task)
        self.reward_shape = reward_shape(self.env)
        self.reports = reports.declared(self.env)
        if self.form != form:
            raise EnvError(self.index, f"its spaces, its reward shape or its reports differ in the task {task}")
        self.episode = None
        self.begun = False

    def set_parameters(self, parameters: dict[str, float]) -> None:
        """Sets attributes of the environment, by name, when the next episode begins.

        Raises EnvError if an attribute does not exist or cannot have the value. That it can be set at all is
        tested only before the first episode, because setting it may have effects.
        """
        for name, value in parameters.items():
            with self._scheduling(name):
                attribute = Attribute.find(owner(self.env, name), name)
                attribute.fitted(value)
                if not self.begun:
                    attribute.set(attribute.now)
        self.parameters = parameters

    def record(self) -> None:
        """Records episodes from now on, for the saving method "replay"."""
        self.recording = True

    def save(self) -> Tree:
        """Returns the state of the environment with its wrappers, or the record of its episode."""
        if not self.recording:
            return self._with_parameters(state.save(self.env))
        if self.episode is None:
            return {LOST: episode_record.NOT_RECORDED}
        try:
            return self.episode.save()
        except NotSavableError as error:
            return {LOST: str(error)}

    def load(self, tree: Any, replay_limit_s: float) -> str:
        """Restores a saved state. Returns the reason if that fails, else "".

        This method does not raise, because an exception would end a worker.
        """
        try:
            if LOST in tree:
                return tree[LOST]
            if episode_record.is_record(tree):
                self._replay(tree, replay_limit_s)
            else:
                if not self.begun:  # environments create attributes at their first reset
                    self.reset(seed=0)
                self.episode = None
                self._restore(tree)
        except Exception as error:
            return line(error)
        finally:
            take_logged()  # discards what the repeated resets and steps log, because it was logged before
        return ""

    def _with_parameters(self, tree: Any) -> Tree:
        """Returns a saved state with the scheduled attributes of its episode."""
        if not self.applied:
            return tree
        return tree | {PARAMETERS: dict(self.applied)}

    def _restore(self, tree: Any) -> None:
        """Restores a saved state, after its scheduled attributes."""
        self._apply(tree.get(PARAMETERS, {}))
        state.restore(self.env, {name: part for name, part in tree.items() if name != PARAMETERS})

    def _apply(self, values: dict[str, float]) -> None:
        """Sets scheduled attributes. A snapshot may be untrusted, so other names and values are ignored or refused."""
        self.applied = {name: float(values[name]) for name in self.parameters if name in values}
        for name, value in self.applied.items():
            with self._scheduling(name):
                Attribute.find(owner(self.env, name), name).set(value)

    @contextmanager
    def _scheduling(self, name: str) -> Iterator[None]:
        """Turns a fault of a scheduled attribute into an EnvError."""
        try:
            yield
        except ScheduledAttributeError as error:
            raise EnvError(self.index, f"{PARAMETERS}.{name}: {error}") from error.__cause__

    def _replay(self, tree: Any, replay_limit_s: float) -> None:
        self.env.close()
        self.env = self.make(**self.task)
        self.recording = True  # the episode may be saved once more
        if tree["before"] is not None:
            self._restore(tree["before"])
        options = state.decode(tree["options"])
        self.episode = RecordedEpisode(tree["before"], tree["seed"], options)
        self.episode.obs = self._begin(tree["seed"], options)
        self.begun = True
        episode_record.play(self, self.episode.obs, tree, replay_limit_s)

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        if seed is not None:  # some environments sample from their own spaces
            for layer in (self.env, self.env.unwrapped):
                layer.action_space.seed(seed)
                layer.observation_space.seed(seed)
        if self.options is not None:
            options = {**(options or {}), **self.options}
        if options and PARAMETERS in options:
            options = dict(options)
            self._apply(options.pop(PARAMETERS))
        try:
            obs, info = self.env.reset(seed=seed, options=options)
            check_observation(self.declared, obs)
            self._check_mask(info)
        except (Exception, SystemExit) as error:
            raise fault(self.index, error) from error
        self.continues = info.get(CONTINUES, False)
        own_reward = self._own_reward()
        if own_reward is not None:
            own_reward.restart()
        return obs

    def _kept(self, info: Info) -> Kept:
        """Returns what is kept of the infos of a step. Raises ReturnedError."""
        kept: Kept = {}
        logged = take_logged()
        if self.reports:
            kept["reports"] = [info.get(name, reports.ABSENT) for name in self.reports]
        if self.executed_action is not None:
            kept["executed"] = executed.read(self.executed_action, self.action_space, info)
        if info:
            self._check_mask(info)
            held: Any = info.get(HELD)
            if held is not None:
                kept["held"] = held._replace(reward=read_reward(held.reward, self.reward_shape))
            success = reported_success(info)
            if success is not None:
                kept["success"] = success
        if self.log_info:
            logged = logged + self._info_numbers(info)
        if logged:
            kept["logged"] = logged
        return kept

    def _info_numbers(self, info: Info) -> Logged:
        """Returns the entries of infos that `env.log_info` names. A step that does not report success logs 0."""
        found = []
        for key in self.log_info:
            if key in info:
                found.append((key, number(f"env.log_info: info[{key!r}]", info[key])))
            elif key in SUCCESS:
                found.append((key, 0.0))
        if self.absent:
            self.absent.difference_update(info)
            self.found.update(info)
        return found

    def _report_absent(self) -> None:
        """Warns about names of `env.log_info` that no info of the first episode had."""
        if self.index == 0:
            for key in sorted(self.absent):
                suggestion = nearest(key, self.found)
                if not suggestion:
                    suggestion = f"; they have {', '.join(sorted(self.found)) or 'no entries'}"
                message = f"env.log_info: no info of the first episode has {key!r}{suggestion}"
                logging.getLogger(__name__).warning("%s", printable(message))
        self.absent = set()

    def _check_mask(self, info: Info) -> None:
        """Raises ReturnedError for a mask that would not be used."""
        if self.refuses_masks and MASK in info:
            raise ReturnedError(LATE_MASK)

    def _own_reward(self) -> OwnReward | None:
        return next((layer for layer in state.layers(self.env) if isinstance(layer, OwnReward)), None)

    def _own_return(self, reward: Any) -> np.ndarray | None:
        """Returns the original return of the episode, [components].

        None if there is no OwnReward wrapper, or if outer wrappers changed the number of reward components.
        """
        own_reward = self._own_reward()
        if own_reward is None or own_reward.total.size != np.size(reward):
            return None
        return own_reward.total


def owner(env: gym.Env, path: str) -> gym.Env:
    """Returns the outermost layer of an environment that has an attribute with the first name of a dotted path.

    Returns the innermost layer if none has it.
    """
    name = path.partition(".")[0]
    for layer in state.layers(env):
        if name in vars(layer) or name in vars(type(layer)):
            return layer
    return env.unwrapped


def reported_success(info: Info) -> float | None:
    """Returns the success that an info reports, from 0 to 1; None if it does not. Raises ReturnedError."""
    for key in SUCCESS:
        value = info.get(key)
        if value is not None:
            return fraction(f"info[{key!r}]", value)
    return None


def fault(index: int, error: BaseException) -> EnvError:
    """Returns an exception as an EnvError with its traceback. Call it in the `except` clause that caught `error`."""
    if isinstance(error, EnvError):
        return error
    return EnvError(index, line(error), traceback.format_exc())


def line(error: BaseException) -> str:
    """Returns the message of an exception as one line."""
    if isinstance(error, EnvError):
        return error.reason
    if isinstance(error, NotSavableError | ReturnedError):
        return str(error)
    return traced(error)
