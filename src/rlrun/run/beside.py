"""Trains while another process evaluates: `trainer.eval_beside=true`."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from rlrun.config.schema import TrainerConfig
from rlrun.core.callback import Callbacks
from rlrun.core.loop import Loop
from rlrun.errors import RunError
from rlrun.run.counts import Counts
from rlrun.run.evaluator import EvaluatorProcess
from rlrun.run.signals import Signals
from rlrun.run.trainer import Checkpointer, RunLog, Trainer
from rlrun.snapshot.store import step_name

EVALUATION = "eval/"  # prefix of the metrics of evaluations


class TrainerBeside(Trainer):
    """A trainer that goes on while a process evaluates the state of an earlier step.

    - The run is saved at that step, before the row is written, so a resume from there repeats the evaluation.
    - The row of that step waits for the evaluation, and later rows wait behind it. The next evaluation, every snapshot
      and the end of the run wait for it too. Rows therefore have the order and the content of those of `Trainer`.
    - Rules read an evaluation when the next one is due, not earlier, because the time that it takes is not repeatable.
    - The last evaluation, for which nothing could go on, is made in the process of the run.
    """

    def __init__(
        self,
        evaluator: EvaluatorProcess,
        cfg: TrainerConfig,
        loop: Loop,
        log: RunLog,
        evaluate: Callable[[int], dict[str, float]],
        checkpointer: Checkpointer,
        callbacks: Callbacks | None = None,
    ):
        super().__init__(cfg, loop, log, evaluate, checkpointer, callbacks)
        self.evaluator = evaluator
        self.step: int | None = None  # of the evaluation under way
        self.reports_success = False  # whether the environments had reported success at that step
        self.waiting: list[dict[str, float]] = []  # the row of that step, and later ones
        self.unread: dict[str, float] | None = None  # metrics and time of the last evaluation, until rules read it

    def run(self, signals: Signals) -> str:
        try:
            return super().run(signals)
        except RunError:
            with suppress(RunError):
                self.finish()  # the rows up to the failure
            raise

    def tick(self) -> None:
        super().tick()
        if self.step is not None and self.evaluator.is_ready():
            self.finish()

    def log_and_evaluate(self, now: Counts) -> None:
        if self.evaluation_is_due(now):
            self.finish()
            if self.unread is not None:
                unread, self.unread = self.unread, None
                self.apply_rules(unread)
        super().log_and_evaluate(now)

    def write_row(self, with_evaluation: bool) -> None:
        if with_evaluation and not self.has_ended(self.now()):
            step = self.loop.steps
            super().snapshot([step_name(step)])
            self.evaluator.begin(step)
            self.step, self.reports_success = step, self.loop.env.reports_success
            with_evaluation = False
        super().write_row(with_evaluation)

    def write(self, row: dict[str, float]) -> None:
        if self.step is None:
            super().write(row)
        else:
            self.waiting.append(row)

    def snapshot(self, names: list[str]) -> None:
        if not names or (self.step == self.loop.steps and not self.is_finished(self.now())):
            return  # the snapshot of this step was taken before its evaluation
        self.finish()
        super().snapshot(names)

    def hold(self) -> None:
        if self.step is None:  # else rows wait that the state counts as written
            super().hold()

    def finish(self) -> None:
        """Waits for the evaluation under way, if any, and writes the rows that wait for it.

        Raises RunError if the evaluation failed.
        """
        if self.step is None:
            return
        step, self.step = self.step, None
        evaluation = self.evaluator.result()
        if self.reports_success:
            evaluation.setdefault("eval/success_rate", 0.0)
        first, *later = self.waiting
        self.waiting = []
        for row in (first | evaluation, *later):
            self.log.row(row)
        self.progress.final_return = evaluation["eval/return_mean"]
        self.update_best(step, evaluation)
        if self.progress.best_step == step:
            self.try_saving(self.checkpointer.mark_best, step_name(step))
        self.unread = {"wall_s": first["wall_s"]} | evaluation

    def recall(self, rows: Sequence[dict[str, float]]) -> None:
        """Applies the rules to the rows before a resume, except to the last evaluation, which they read later."""
        rows = [*rows]
        evaluated = [index for index, row in enumerate(rows) if "eval/return_mean" in row]
        if evaluated:
            row = rows[evaluated[-1]]
            evaluation = {key: value for key, value in row.items() if key.startswith(EVALUATION)}
            rows[evaluated[-1]] = {key: value for key, value in row.items() if key not in evaluation}
            self.unread = {"wall_s": row["wall_s"]} | evaluation
        super().recall(rows)
