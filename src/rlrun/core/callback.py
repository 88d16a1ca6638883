"""Callbacks: the user's code that a run calls at its events."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import gymnasium as gym
import numpy as np
from torch import nn

from rlrun.core.agent import Agent
from rlrun.core.logged import log
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError, RunError, reason
from rlrun.module import Module
from rlrun.settings import config
from rlrun.types import Batch, Context, Episode, Return, Step


class AgentCopy(Protocol):
    """A copy of a run's agent. It shares nothing with the run, and no engine records it."""

    agent: Agent

    def follow(self, name: str) -> None:
        """Takes over the present state of the run's agent. Its random streams are seeded by `name`."""


@dataclass(frozen=True)
class RunView:
    """What callbacks can access of their run. Its methods change nothing in the run, and draw none of its numbers."""

    path: Path  # folder of the run
    loop: Loop  # its agent, environments, buffer, and the counters `steps` and `updates`
    stop: Callable[[str], None]  # ends the run after the current step, with this text as the reason
    media: Callable[[int, str, Any], None]  # stores an image, a video or a histogram: (step, name, value)

    def policy(self) -> Any:
        """Returns a copy of the agent as it is now, as a `Policy` like that of `rlrun.load`.

        It does not follow the training: the next call returns a newer one. It explores with random numbers of its own.
        """
        raise NotImplementedError

    def make_env(self, num_envs: int | None = None, render_mode: str | None = None) -> gym.Env | gym.vector.VectorEnv:
        """Returns new environments of the run, as `Run.make_env` does.

        Numbers that they log with `rlrun.log` become metrics of the run.
        """
        raise NotImplementedError

    def agent_copy(self) -> AgentCopy:
        """Returns a copy of the agent, for what must not happen to the agent itself, such as an update."""
        raise NotImplementedError

    def replay(self) -> dict[str, np.ndarray]:
        """Returns a copy of the replay buffer, as `Run.replay` does."""
        raise NotImplementedError


class Callback(Module):
    """Base class. Every method does nothing by default, and may be overridden.

    A callback must not change the run, so that log rows and weights are the same without it, unless it sets `changes`:
    then it may change the agent, the environments and anything else. State in buffers, submodules or `get_extra_state`
    is saved in snapshots. `run` is set before `on_start`, `episode` before `on_episode`, and
    `measures`, such as the regret of bandits, before `on_step`.
    """

    changes: ClassVar[str | None] = None  # what it changes in the run, such as "the learning rate"; None: nothing
    resumes_exactly: ClassVar[bool] = False  # whether a resumed run continues its changes bit for bit

    @config
    class Config:
        pass

    run: RunView
    episode: Episode  # the episode of `on_episode`, with its end and its success
    measures: Mapping[str, np.ndarray]  # name -> [num_envs], what simulators report in the step of `on_step`

    def __init__(self, cfg: Any = None):
        super().__init__()
        self.cfg = cfg

    def log(self, name: str, value: float) -> None:
        """Logs a number as the metric `custom/<name>`: its mean since the last row."""
        log(name, value)

    def show(self, name: str, value: object) -> None:
        """Stores an Image, a Video or a Histogram of `rlrun.media` in RUN/media, and passes it to loggers."""
        self.run.media(self.run.loop.steps, name, value)

    def on_start(self) -> None:
        """Called before the first step, and again when the run is resumed."""

    def on_step(self, step: Step) -> None:
        """Called once for every timestep of all environments, in order; on-policy, after a block of timesteps.

        step: tensors [num_envs, ...], listed at `rlrun.types.Step`, without normalisation and intrinsic rewards.
        """

    def on_update(self, batch: Batch, ctx: Context) -> None:
        """Called before every update of the agent, with what `Agent.update` receives. Must not change the batch."""

    def on_episode(self, episode_return: Return, length: int) -> None:
        """Called for every training episode that ended. length: in steps."""

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Called after an evaluation with its metrics `eval/*`, before the row is written.

        Not supported by runs with `trainer.eval_beside=true`.
        """

    def on_row(self, row: Mapping[str, float]) -> None:
        """Called with every row of metrics before it is written. Numbers that it logs are added to this row.

        With `trainer.eval_beside=true`, a row has no metrics `eval/*` yet.
        """

    def on_snapshot(self, name: str) -> None:
        """Called when a snapshot was taken. It may still be being written to RUN/snapshots/<name>.

        With `trainer.eval_beside=true`, it is not called for `best`, which is then a link to an earlier snapshot.
        """

    def on_end(self, summary: Mapping[str, object]) -> None:
        """Called at the end with the content of summary.json, also if the run was stopped or failed."""


class Callbacks(nn.ModuleList):
    """The callbacks of a run, called in order."""

    def __init__(self, callbacks: Iterable[Callback] = ()):
        super().__init__(callbacks)

    def __iter__(self) -> Iterator[Callback]:
        return super().__iter__()  # type: ignore[return-value]

    def begin(self, view: RunView) -> None:
        """Hands the run to every callback and calls `on_start`."""
        for callback in self:
            callback.run = view
        self.call("on_start")

    @property
    def watch_steps(self) -> bool:
        """Whether one of them has an `on_step` of its own."""
        return any(type(callback).on_step is not Callback.on_step for callback in self)

    @property
    def watch_updates(self) -> bool:
        """Whether one of them has an `on_update` of its own."""
        return any(type(callback).on_update is not Callback.on_update for callback in self)

    def take_update(self, batch: object, ctx: Context) -> None:
        """Calls `on_update`."""
        self.call("on_update", batch, ctx)

    def take_step(self, step: Step, measures: Mapping[str, np.ndarray]) -> None:
        """Hands the measures of a step to every callback and calls `on_step`."""
        for callback in self:
            callback.measures = measures
        self.call("on_step", step)

    def end_episode(self, episode: Episode) -> None:
        """Hands an episode to every callback and calls `on_episode`."""
        for callback in self:
            callback.episode = episode
        self.call("on_episode", episode.returned, episode.length)

    def call(self, event: str, *values: object) -> None:
        """Calls a method of every callback with copies of the values. Raises RunError if one of them raises, but
        lets a ConfigError pass."""
        for callback in self:
            try:
                getattr(callback, event)(*map(copy.copy, values))
            except ConfigError:  # its line says what to change
                raise
            except (Exception, SystemExit) as error:
                raise RunError(f"callback {name_of(callback)}: {event}: {reason(error)}") from error

    def warnings(self) -> list[str]:
        """Returns why a resume is not exact: a line for each callback whose changes it does not continue exactly."""
        lines = []
        for callback in self:
            if callback.changes is not None and not callback.resumes_exactly:
                lines.append(f"callback {name_of(callback)} changes {callback.changes}")
        return lines

    def announcements(self) -> list[str]:
        """Returns a line for each callback that changes the run."""
        lines = []
        for callback in self:
            if callback.changes is not None:
                exactly = "exactly" if callback.resumes_exactly else "not exactly"
                name = name_of(callback)
                lines.append(f"callback {name} changes {callback.changes}: a resume continues the run {exactly}")
        return lines


def name_of(callback: Callback) -> str:
    """Returns the registered name of a callback, or the name of its class."""
    return getattr(callback, "registered", type(callback).__name__)
