"""The one trainer: ticks a loop until it is done; logs, evaluates, snapshots and stops when that is due."""

import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pydantic
import torch

from rlrun.config.schema import TrainerConfig
from rlrun.core.breakable import BrokenOffError
from rlrun.core.loop import Loop
from rlrun.core.measures import drain
from rlrun.core.state import Optim
from rlrun.errors import RunError, SnapshotError
from rlrun.run.evaluation import EvaluationInterruptedError
from rlrun.run.returns import components, score
from rlrun.run.signals import Signals
from rlrun.snapshot.store import BEST, step_name
from rlrun.types import Metrics


class Log(Protocol):
    """Where the trainer reports: rows of metrics, the progress and messages."""

    def row(self, values: dict[str, float]) -> None: ...
    def progress(self, step: int) -> None: ...
    def message(self, text: str) -> None: ...


@dataclass
class Progress:
    """What the trainer itself must remember. Snapshots hold it."""

    best_return: float | None = None
    best_step: int | None = None
    best_shortfall: float = 0.0  # below the floors of a reward vector's components
    final_return: float | None = None
    episodes: int = 0
    returns: float = 0.0  # their sum
    settled: int = 0  # steps up to which rows and evaluations are done


_progress = pydantic.TypeAdapter(Progress)


def nothing(*_: object) -> None:
    """What there is to do where nothing is saved, sealed or waited for."""


class Trainer:
    """evaluate(step) -> eval/* values; save(names, state, clocks) takes a snapshot, which is on disk after `wait`;
    `seal`, after every tick, lets the largest part of the next be written as it comes. All three raise SnapshotError
    where the disk did not have the last one."""

    def __init__(
        self,
        cfg: TrainerConfig,
        loop: Loop,
        log: Log,
        evaluate: Callable[[int], dict[str, float]],
        save: Callable[[list[str], dict[str, Any], dict[str, float]], object],
        seal: Callable[[], object] = nothing,
        wait: Callable[[], object] = nothing,
    ):
        self.cfg, self.loop, self.log, self.evaluate, self.wait = cfg, loop, log, evaluate, wait
        self.save, self.seal = (nothing, nothing) if cfg.snapshot_every is None else (save, seal)
        self.optims = [(name, module) for name, module in loop.named_modules() if isinstance(module, Optim)]
        self.progress = Progress()
        self.metrics: Metrics = {}  # of the last update
        self.wall_s = 0.0  # before this process
        self.started = time.monotonic()
        self.last = (self.started, loop.steps, loop.updates)

    def run(self, signals: Signals) -> str:
        """Train until `total_steps` or a signal, and until the last snapshot is on disk. Returns "done" or "stopped";
        raises RunError where numbers broke, SnapshotError where the disk did not have the last one."""
        try:
            status = self.train(signals)
        except BrokenOffError:
            self.log.message("stopped while a kernel was compiled: the run goes on from its last snapshot")
            status = "stopped"
        self.wait()
        return status

    def train(self, signals: Signals) -> str:
        loop, cfg, progress = self.loop, self.cfg, self.progress
        self.last = (time.monotonic(), loop.steps, loop.updates)
        while min(loop.steps, progress.settled) < cfg.total_steps:
            before = progress.settled
            if loop.steps == before:  # else a resumed run still owes the row of its last tick
                if metrics := loop.tick():
                    self.updated(metrics)
                if loop.restarted:
                    self.tell_restarts()
                self.attempt(self.seal)
            try:
                self.settle()
            except EvaluationInterruptedError:
                self.snapshot([step_name(loop.steps)])
                return "stopped"
            done, stop = loop.steps >= cfg.total_steps, signals.received  # read once: it may come at any instant
            names = [BEST] if progress.best_step == loop.steps else []
            if done or stop or due(cfg.snapshot_every or 0, before, loop.steps):
                names.append(step_name(loop.steps))
            self.snapshot(names)
            if stop and not done:
                return "stopped"
            self.log.progress(loop.steps)
        return "done"

    def updated(self, metrics: Metrics) -> None:
        """The agent has learned."""
        self.metrics = metrics
        if self.loop.env.device.type == "cpu":  # elsewhere reading the flag would wait for the device at every tick
            self.check_faults()

    def tell_restarts(self) -> None:
        """Before anything is saved, so that no snapshot need hold what was not told yet."""
        for line in self.loop.restarted:
            self.log.message(line)
        self.loop.restarted = []

    def settle(self) -> None:
        """Evaluate and log what the last tick made due. All or nothing: an interrupted one is done again."""
        loop, cfg, before = self.loop, self.cfg, self.progress.settled
        ended = loop.steps >= cfg.total_steps
        evaluation_due = cfg.eval_episodes > 0 and (ended or due(cfg.eval_every, before, loop.steps))
        if ended or evaluation_due or due(cfg.log_every, before, loop.steps):
            self.write_row(evaluation_due)
        self.progress.settled = loop.steps

    def write_row(self, with_evaluation: bool) -> None:
        """One row of metrics, with an evaluation where one is due."""
        self.check_faults()
        loop, progress = self.loop, self.progress
        values = self.speeds()
        if with_evaluation:
            values |= self.evaluate(loop.steps)
            progress.final_return = values["eval/return_mean"]
        losses = {f"loss/{name}": float(value) for name, value in self.metrics.items()}
        for name, value in losses.items():
            if not math.isfinite(value):
                raise RunError(f"{name} is {value} at step {loop.steps}")
        values |= self.train_values() | losses
        self.log.row({"step": loop.steps, "wall_s": self.elapsed()} | values)
        progress.settled = loop.steps
        if with_evaluation:
            self.compare(values["eval/return_mean"], values.get("eval/shortfall", 0.0))
        self.last = (time.monotonic(), loop.steps, loop.updates)

    def compare(self, returned: float, shortfall: float) -> None:
        """Is this evaluation the best? One that meets the floors better is, whatever it returns."""
        progress = self.progress
        if progress.best_return is None or (-shortfall, returned) > (-progress.best_shortfall, progress.best_return):
            progress.best_return, progress.best_step, progress.best_shortfall = returned, self.loop.steps, shortfall

    def train_values(self) -> dict[str, float]:
        """Episodes that ended since the last row, the mean return of all so far, and what the environments reported."""
        self.loop.hear()
        ended, successes = self.loop.episodes, self.loop.successes
        self.progress.episodes += len(ended)
        values: dict[str, float] = {"train/episodes": self.progress.episodes}
        if ended:
            returns = sum(score(returned, self.loop.objective) for returned, _ in ended)
            self.progress.returns += returns
            values["train/return_mean"] = returns / len(ended)
            values["train/return_smooth"] = self.progress.returns / self.progress.episodes
            values["train/length_mean"] = sum(length for _, length in ended) / len(ended)
            values |= components("train", [returned for returned, _ in ended])
        if successes:
            values["train/success_rate"] = sum(successes) / len(successes)
        self.loop.episodes, self.loop.successes = [], []
        return values | {f"train/{name}": value for name, value in drain(self.loop.measures).items()}

    def speeds(self) -> dict[str, float]:
        since, steps, updates = self.last
        seconds = max(time.monotonic() - since, 1e-9)
        shares = self.loop.clock.drain()
        known = {f"time/share_{phase}": spent / seconds for phase, spent in shares.items()}
        values = {
            "time/steps_per_s": (self.loop.steps - steps) / seconds,
            "time/updates_per_s": (self.loop.updates - updates) / seconds,
            **known,
            "time/share_log": max(0.0, 1 - sum(known.values())),
            "sys/rss_mb": resident_mb(),
        }
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            values["sys/gpu_mb"] = torch.cuda.max_memory_allocated() / 2**20
        return values

    def check_faults(self) -> None:
        """Optimisers refuse to move on a gradient that is not finite; here the run learns of it and stops."""
        for name, optim in self.optims:
            if optim.fault:
                raise RunError(f"{name}: loss or gradient is not finite by step {self.loop.steps}; no weight moved")

    def snapshot(self, names: list[str]) -> None:
        """Save the state under these names."""
        if not names:
            return
        self.check_faults()
        self.attempt(self.wait)
        self.attempt(lambda: self.save(names, self.state(), {"wall_s": self.elapsed()}))

    def attempt(self, save: Callable[[], object]) -> None:
        """What the disk may refuse, now or in the background: then that is told, and training goes on or stops."""
        try:
            save()
        except SnapshotError as error:
            if self.cfg.snapshot_on_failure == "stop":
                raise
            self.log.message(f"{error}; training goes on")

    def elapsed(self) -> float:
        """Seconds of training, of earlier processes too."""
        return self.wall_s + time.monotonic() - self.started

    def state(self) -> dict[str, Any]:
        """Everything the run is: the loop's modules, and what the trainer remembers."""
        own = {"progress": vars(self.progress), "metrics": {k: v.detach().clone() for k, v in self.metrics.items()}}
        return self.loop.state_dict() | {"trainer._extra_state": own}

    def load(self, state: dict[str, Any], clocks: dict[str, float]) -> None:
        own = state.pop("trainer._extra_state")
        self.loop.load_state_dict(state)
        self.progress, self.metrics = _progress.validate_python(own["progress"]), own["metrics"]
        self.wall_s = float(clocks["wall_s"])


def due(period: int, before: int, after: int) -> bool:
    """Whether a multiple of the period was reached in (before, after]; a period of 0 never is."""
    return period > 0 and after // period > before // period


def resident_mb() -> float:
    """Memory held by this process now, in MiB (its peak, where the system does not tell)."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)
