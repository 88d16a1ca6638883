"""The trainer calls `Loop.tick` until the run is done or stopped, and logs, evaluates and takes snapshots when due."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Protocol

import numpy as np
import pydantic
import torch

from rlrun.config.schema import TrainerConfig
from rlrun.core.accumulator import CUSTOM
from rlrun.core.callback import Callbacks
from rlrun.core.interruptible import CompilationInterruptedError
from rlrun.core.logged import take_logged
from rlrun.core.loop import Loop
from rlrun.core.state import Optim
from rlrun.errors import PROGRAM, RunError, SnapshotError
from rlrun.operating_system import resident_mb
from rlrun.run.counts import Count, Counts
from rlrun.run.evaluation import EvaluationInterruptedError
from rlrun.run.returns import components, score, spread
from rlrun.run.signals import Signals
from rlrun.run.stopping import StoppingRules
from rlrun.snapshot.store import BEST, step_name
from rlrun.types import Episode


class RunLog(Protocol):
    """Receives the trainer's log rows, progress and messages."""

    def row(self, values: dict[str, float]) -> None: ...
    def progress(self, step: int) -> None: ...
    def message(self, text: str) -> None: ...


class Checkpointer(Protocol):
    """Saves snapshots. Files are written in the background, so each method may raise the SnapshotError of an earlier
    write."""

    def save(self, names: list[str], state: dict[str, object], clocks: dict[str, float]) -> None:
        """Takes a snapshot under these names. It is on disk when `wait` returns."""

    def hold(self, name: str, state: dict[str, object], clocks: dict[str, float]) -> None:
        """Keeps a copy of the state in memory, which is saved if the run crashes."""

    def may_hold(self, is_due: bool) -> bool:
        """Returns whether `hold` should be called: when it is due, or if no copy is kept any more."""

    def mark_best(self, name: str) -> None:
        """Links the snapshot of this name, which was taken before, as the best one."""

    def flush(self) -> None:
        """Writes data that will not change any more, to make the next snapshot faster. Called after every tick."""

    def wait(self) -> None:
        """Waits until the last snapshot is on disk."""


class NoCheckpoints:
    """The checkpointer of a run without snapshots; does nothing."""

    def save(self, names: list[str], state: dict[str, object], clocks: dict[str, float]) -> None: ...
    def hold(self, name: str, state: dict[str, object], clocks: dict[str, float]) -> None: ...
    def may_hold(self, is_due: bool) -> bool:
        return False

    def mark_best(self, name: str) -> None: ...
    def flush(self) -> None: ...
    def wait(self) -> None: ...


NONE = Counts()
HOLD_SHARE = 0.01  # fraction of the time in which the state may be copied for the case of a crash


@dataclass
class Progress:
    """The trainer's own state, saved in snapshots."""

    best_return: pydantic.FiniteFloat | None = None
    best_step: Count | None = None
    best_shortfall: pydantic.FiniteFloat = 0.0  # `eval/shortfall` at that step
    final_return: pydantic.FiniteFloat | None = None
    episodes: Count = 0
    returns: float = 0.0  # sum of the returns of all episodes
    # point up to which log rows and evaluations are complete; named `settled` in snapshots
    logged_until: Annotated[Counts, pydantic.Field(alias="settled")] = NONE


CALLBACKS = "callbacks."  # prefix of the state of callbacks

_progress_adapter = pydantic.TypeAdapter(Progress)


class Trainer:
    """Trains a loop up to `total_steps`, `total_updates` or `stop_at`. `evaluate(step)` returns metrics `eval/*`."""

    def __init__(
        self,
        cfg: TrainerConfig,
        loop: Loop,
        log: RunLog,
        evaluate: Callable[[int], dict[str, float]],
        checkpointer: Checkpointer,
        callbacks: Callbacks | None = None,
    ):
        self.cfg, self.loop, self.log, self.evaluate = cfg, loop, log, evaluate
        self.callbacks = Callbacks() if callbacks is None else callbacks
        self.rules = StoppingRules(cfg.stop_when)
        self.stop_reason: str | None = None  # set by a rule or a callback that ends the run
        self.called_for = 0  # number of `loop.metrics.episodes` for which callbacks have been called
        if self.callbacks.watch_steps:
            loop.watch = self.callbacks.take_step
        if self.callbacks.watch_updates:
            loop.watch_update = self.callbacks.take_update
        self.checkpointer = NoCheckpoints() if cfg.snapshot_every is None else checkpointer
        self.optims = [(name, module) for name, module in loop.named_modules() if isinstance(module, Optim)]
        self.progress = Progress()
        self.wall_s = 0.0  # seconds of training in earlier processes
        self.started = time.monotonic()
        self.last = (self.started, loop.steps, loop.updates)  # time, steps and updates at the last row
        self.hold_after = 0.0  # time from which on the state is copied again

    def run(self, signals: Signals) -> str:
        """Trains until the run or this process ends, then waits for the last snapshot.

        Returns "done", "paused" (at `stop_at`) or "stopped" (by a signal).

        Raises RunError if a loss or gradient is not finite, SnapshotError if the last snapshot cannot be written.
        """
        try:
            status = self.train(signals)
        except CompilationInterruptedError:
            self.log.message("stopped while a kernel was compiled: a resume continues from the last snapshot")
            status = "stopped"
        self.checkpointer.wait()
        return status

    def train(self, signals: Signals) -> str:
        """Does the work of `run`, except the wait for the last snapshot."""
        loop, cfg, progress = self.loop, self.cfg, self.progress
        self.last = (time.monotonic(), loop.steps, loop.updates)
        now = self.now()
        while not self.is_finished(now):
            before = progress.logged_until
            if now.steps == before.steps:  # else an interrupted evaluation was resumed, and its log row comes first
                self.tick()
                now = self.now()
            try:
                self.log_and_evaluate(now)
            except EvaluationInterruptedError:
                take_logged()
                self.snapshot([step_name(loop.steps)])
                return "stopped"
            ends = self.is_over(now) or self.stop_reason is not None
            stop = signals.received  # read once, because a signal may arrive at any time
            names = []
            if progress.best_step == loop.steps:
                names.append(BEST)
            if ends or stop or self.is_due(now, before, cfg.snapshot_every or 0, cfg.num_snapshots):
                names.append(step_name(loop.steps))
            self.snapshot(names)
            if stop and not ends:
                return "stopped"
            if cfg.snapshot_at_crash != "never" and not names:
                self.hold()
            self.log.progress(loop.steps)
            if self.stop_reason is not None and not ends:  # `on_snapshot` of a callback has just ended the run
                self.snapshot([step_name(loop.steps)])
        if self.stop_reason is None and not self.is_complete(now):
            self.stop_reason = f"trainer.stop_at={cfg.stop_at:,} pauses it until `{PROGRAM} resume`"
            return "paused"
        if self.stop_reason is None and now.steps < cfg.total_steps:
            self.stop_reason = f"it made {now.updates:,} updates"
        return "done"

    def now(self) -> Counts:
        """Returns how far the run is. Episodes that ended on a GPU are counted if a period is in episodes."""
        loop = self.loop
        if self.cfg.period_unit == "episodes":
            loop.fetch_episodes()
        return Counts(loop.steps, loop.updates, self.progress.episodes + len(loop.metrics.episodes))

    def is_complete(self, point: Counts) -> bool:
        """Returns whether the run has all its steps, or all its updates, at this point."""
        cfg = self.cfg
        return point.steps >= cfg.total_steps or point.updates >= (cfg.total_updates or math.inf)

    def is_over(self, point: Counts) -> bool:
        """Returns whether this process ends at this point."""
        return self.is_complete(point) or point.steps >= (self.cfg.stop_at or math.inf)

    def is_finished(self, now: Counts) -> bool:
        """Returns whether this process has ended training, and has written the last row."""
        return self.stop_reason is not None or (self.is_over(now) and self.is_over(self.progress.logged_until))

    def tick(self) -> None:
        """Runs one tick of the loop, checks for faults, logs notices and flushes the checkpointer."""
        metrics = self.loop.tick()
        if self.callbacks:
            self.call_for_episodes()
        self.loop.metrics.log(take_logged())
        if metrics and self.loop.env.device.type == "cpu":  # on a GPU, reading the flag waits for the GPU
            self.check_faults()
        if self.loop.notices:
            self.log_notices()
        self.try_saving(self.checkpointer.flush)

    def call_for_episodes(self) -> None:
        """Calls the callbacks for every episode that has ended since the last call."""
        episodes = self.loop.metrics.episodes
        for episode in episodes[self.called_for :]:
            self.callbacks.end_episode(episode)
        self.called_for = len(episodes)

    def stop(self, reason: str) -> None:
        """Ends the run after the current step."""
        self.stop_reason = reason

    def apply_rules(self, row: Mapping[str, float]) -> None:
        """Adds a row to the stopping rules, and ends the run if one of them holds now."""
        self.rules.add(row)
        reason = self.rules.reason()
        if reason is not None:
            self.stop(reason)

    def recall(self, rows: Sequence[dict[str, float]]) -> None:
        """Applies the rules to the rows before a resume. Called once, after `load`."""
        for row in rows:
            self.apply_rules(row)

    def log_notices(self) -> None:
        """Logs the notices of the loop. Called before a snapshot, which does not store `loop.notices`."""
        for line in self.loop.notices:
            self.log.message(line)
        self.loop.notices = []

    def log_and_evaluate(self, now: Counts) -> None:
        """Evaluates and logs if due after the last tick. An interrupted evaluation is repeated from its start."""
        with_evaluation = self.evaluation_is_due(now)
        cfg, before = self.cfg, self.progress.logged_until
        if with_evaluation or self.has_ended(now) or self.is_due(now, before, cfg.log_every, cfg.num_rows):
            self.write_row(with_evaluation)
        self.progress.logged_until = now

    def has_ended(self, now: Counts) -> bool:
        """Returns whether the run ends here, so that its last row is due."""
        return self.is_complete(now) or self.stop_reason is not None

    def evaluation_is_due(self, now: Counts) -> bool:
        """Returns whether the row that is due has an evaluation."""
        cfg, before = self.cfg, self.progress.logged_until
        return cfg.eval_episodes > 0 and (
            self.has_ended(now) or self.is_due(now, before, cfg.eval_every, cfg.num_evals)
        )

    def is_due(self, now: Counts, before: Counts, period: int, count: int | None) -> bool:
        """Returns whether a multiple of the period was reached after `before`; with a count, one of so many points that
        are spread evenly over the run."""
        if count is None:
            return now.is_due(period, self.cfg.period_unit, before)
        return math.floor(count * self.part(now)) > math.floor(count * self.part(before))

    def part(self, point: Counts) -> Fraction:
        """Returns the part of the run that is done at a point, of its steps or its updates, whichever is larger."""
        done = Fraction(point.steps, self.cfg.total_steps)
        if self.cfg.total_updates is not None:
            done = max(done, Fraction(point.updates, self.cfg.total_updates))
        return done

    def write_row(self, with_evaluation: bool) -> None:
        """Writes one log row, with the metrics of an evaluation if `with_evaluation` is True.

        Raises RunError if a loss is not finite.
        """
        self.check_faults()
        loop, progress = self.loop, self.progress
        values = self.time_metrics()
        if with_evaluation:
            values |= self.evaluate(loop.steps)
            if loop.env.reports_success:  # in an evaluation without any report, no episode was a success
                values.setdefault("eval/success_rate", 0.0)
            take_logged()  # discards what the evaluation logged, because it is not a metric of the training
            progress.final_return = values["eval/return_mean"]
            self.callbacks.call("on_evaluation", {key: values[key] for key in values if key.startswith("eval/")})
        losses = {name: float(mean) for name, mean in loop.metrics.drain().items()}
        for name, value in losses.items():
            if not math.isfinite(value):
                raise RunError(f"{name} is {value} at step {loop.steps}")
        values |= self.episode_metrics() | self.agent_metrics() | losses
        row = {"step": loop.steps, "wall_s": self.elapsed()} | values
        self.callbacks.call("on_row", row)
        loop.metrics.log(take_logged())
        row |= loop.metrics.drain_logged()
        self.write(row)
        self.apply_rules(row)
        progress.logged_until = self.now()
        if with_evaluation:
            self.update_best(loop.steps, values)
        self.last = (time.monotonic(), loop.steps, loop.updates)

    def write(self, row: dict[str, float]) -> None:
        """Writes a complete log row."""
        self.log.row(row)

    def update_best(self, step: int, evaluation: Mapping[str, float]) -> None:
        """Records an evaluation if it is the best so far: the smallest shortfall, then the highest return."""
        progress = self.progress
        mean_return, shortfall = evaluation["eval/return_mean"], evaluation.get("eval/shortfall", 0.0)
        best = (-progress.best_shortfall, progress.best_return)
        if progress.best_return is None or (-shortfall, mean_return) > best:
            progress.best_return = mean_return
            progress.best_step = step
            progress.best_shortfall = shortfall

    def episode_metrics(self) -> dict[str, float]:
        """Returns metrics of the episodes since those of the last row, and the mean return of all episodes so far.

        Also returns the measures of the environments. Empties the list of episodes once it has `min_episodes`.
        """
        loop, progress = self.loop, self.progress
        loop.fetch_episodes()
        if self.callbacks:
            self.call_for_episodes()
        num_ended = len(loop.metrics.episodes)
        values: dict[str, float] = {"train/episodes": progress.episodes + num_ended, "train/updates": loop.updates}
        if num_ended >= self.cfg.min_episodes:
            self.called_for = 0
            ended = loop.metrics.drain_episodes()
            progress.episodes += num_ended
            returns = [episode.returned for episode in ended]
            scores = [score(one, loop.objective) for one in returns]
            total = sum(scores)
            progress.returns += total
            values["train/return_mean"] = total / len(ended)
            values |= spread("train", scores)
            values["train/return_smooth"] = progress.returns / progress.episodes
            values["train/length_mean"] = sum(episode.length for episode in ended) / len(ended)
            values |= components("train", returns) | self.success_metrics(ended) | last_infos(ended)
        return values | loop.metrics.drain_measures()

    def success_metrics(self, ended: list[Episode]) -> dict[str, float]:
        """Returns the fractions of episodes and of steps with success, once an environment has reported any."""
        if all(episode.success is None for episode in ended):
            return {}
        return {
            "train/success_rate": sum(episode.success or 0.0 for episode in ended) / len(ended),
            "train/success_fraction": sum(episode.success_fraction or 0.0 for episode in ended) / len(ended),
        }

    def agent_metrics(self) -> dict[str, float]:
        """Returns what the agent reports, such as epsilon, and learning rates and scheduled values."""
        values = {}
        for path, optim in self.optims:
            if path.startswith("agent."):
                values[f"train/{learning_rate_name(path)}"] = float(optim.learning_rate)
        for name, value in (self.loop.agent.report() | self.loop.schedules.report()).items():
            values[f"train/{name}"] = float(value)
        scheduled = {f"train/env.{name}": value for name, value in self.loop.env_parameters().items()}
        return values | scheduled

    def time_metrics(self) -> dict[str, float]:
        """Returns steps and updates per second since the last row, the fraction of time in each phase, and memory."""
        since, steps, updates = self.last
        seconds = max(time.monotonic() - since, 1e-9)
        values = {
            "time/steps_per_s": (self.loop.steps - steps) / seconds,
            "time/updates_per_s": (self.loop.updates - updates) / seconds,
        }
        rest = 1.0
        for phase, spent in self.loop.clock.drain().items():
            values[f"time/share_{phase}"] = spent / seconds
            rest -= spent / seconds
        values["time/share_log"] = max(0.0, rest)
        values["sys/rss_mb"] = resident_mb()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            values["sys/gpu_mb"] = torch.cuda.max_memory_allocated() / 2**20
        return values

    def check_faults(self) -> None:
        """Raises RunError if an optimiser received a gradient that is not finite, and so stopped changing weights."""
        for name, optim in self.optims:
            if optim.fault:
                raise RunError(
                    f"{name}: a loss or gradient was not finite at or before step {self.loop.steps}; this optimiser "
                    "has changed no weight since"
                )

    def snapshot(self, names: list[str]) -> None:
        """Saves a snapshot under these names. Does nothing without names."""
        if not names:
            return
        self.prepare_snapshot()
        self.try_saving(self.checkpointer.wait)
        self.try_saving(self.checkpointer.save, names, self.state(), {"wall_s": self.elapsed()})
        for name in names:
            self.callbacks.call("on_snapshot", name)

    def prepare_snapshot(self) -> None:
        """Checks that the state is finite, and calls the callbacks for all episodes in it."""
        self.check_faults()
        if self.callbacks:  # a snapshot holds the episodes so far, for which a resumed run calls no callback
            self.loop.fetch_episodes()
            self.call_for_episodes()

    def hold(self) -> None:
        """Copies the state for the case of a crash, unless that would take more than `HOLD_SHARE` of the time."""
        begin = time.monotonic()
        if not self.checkpointer.may_hold(begin >= self.hold_after):
            return
        self.prepare_snapshot()
        self.try_saving(self.checkpointer.hold, step_name(self.loop.steps), self.state(), {"wall_s": self.elapsed()})
        end = time.monotonic()
        self.hold_after = end + (end - begin) / HOLD_SHARE

    def try_saving(self, save: Callable[..., None], *arguments: object) -> None:
        """Calls a method of the checkpointer. A SnapshotError is logged, or raised if `snapshot_on_failure` is stop."""
        try:
            save(*arguments)
        except SnapshotError as error:
            if self.cfg.snapshot_on_failure == "stop":
                raise
            self.log.message(f"{error}; training continues")

    def elapsed(self) -> float:
        """Returns the seconds of training, including those in earlier processes."""
        return self.wall_s + time.monotonic() - self.started

    def state(self) -> dict[str, object]:
        """Returns the state of the whole run: that of the loop and that of the trainer."""
        progress = _progress_adapter.dump_python(self.progress, by_alias=True)
        own = {"trainer._extra_state": {"progress": progress}}
        return self.loop.state_dict() | self.callbacks.state_dict(prefix=CALLBACKS) | own

    def load(self, state: dict[str, Any], clocks: dict[str, float]) -> None:
        """Restores a snapshot's state and clocks. If they do not fit this run, raises an exception of any type."""
        own = state.pop("trainer._extra_state")
        saved = {key: state.pop(key) for key in list(state) if key.startswith(CALLBACKS)}
        self.loop.load_state_dict(state)
        columns: tuple[int, ...] = ()
        if self.loop.objective is not None:
            columns = (len(self.loop.objective.weights),)
        if any(np.shape(episode.returned) != columns for episode in self.loop.metrics.episodes):
            raise ValueError(f"the returns of its episodes must have the shape {columns}")
        self.load_callbacks({key.removeprefix(CALLBACKS): value for key, value in saved.items()})
        self.loop.set_parameters()
        self.called_for = len(self.loop.metrics.episodes)
        self.progress = _progress_adapter.validate_python(own["progress"])
        self.wall_s = float(clocks["wall_s"])

    def load_callbacks(self, saved: dict[str, object]) -> None:
        """Restores the callbacks. One of which nothing was saved, because the resume has added it, begins anew."""
        missing, unknown = self.callbacks.load_state_dict(saved, strict=False)
        known = {key.partition(".")[0] for key in saved}
        wrong = [*unknown, *(key for key in missing if key.partition(".")[0] in known)]
        if wrong:
            raise ValueError(f"the state of its callbacks does not fit: {wrong[0]}")


def last_infos(ended: list[Episode]) -> dict[str, float]:
    """Returns the entries of the infos of the last steps, each as its mean over the episodes that have it."""
    found: dict[str, list[float]] = {}
    for episode in ended:
        for name, value in (episode.infos or {}).items():
            found.setdefault(name, []).append(value)
    return {f"{CUSTOM}{name}_last_step": sum(values) / len(values) for name, values in found.items()}


def learning_rate_name(path: str) -> str:
    """Returns the metric of an optimiser's learning rate: `actor_learning_rate` for "agent.actor_optim".

    Agents of a population have one name, because their learning rates are equal.
    """
    roles = [part.removesuffix("optim").strip("_") for part in path.split(".")[1:] if not part.isdigit()]
    return "_".join([*filter(None, roles), "learning_rate"])
