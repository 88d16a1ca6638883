"""Rules that end a run before its last step."""

from collections import deque
from collections.abc import Mapping

from rlrun.config.schema import StopWhenConfig
from rlrun.errors import RunError, nearest


class StoppingRules:
    """Decides from the log rows of a run whether the run ends early.

    A run ends when a metric has reached a bound or has stopped rising, or when the time is up. The rows so far are the
    only state, so a resumed run decides as if it had not been interrupted.
    """

    def __init__(self, cfg: StopWhenConfig):
        self.cfg = cfg
        self.latest: deque[float] = deque(maxlen=cfg.times)  # the last values of the metric
        self.best = float("-inf")
        self.since_best = 0  # values since the best one
        self.hours = 0.0  # of training
        metric_rules = (cfg.at_least, cfg.at_most, cfg.plateau)
        self.needs_metric = any(rule is not None for rule in metric_rules)

    def add(self, row: Mapping[str, float]) -> None:
        """Takes the next row. Rows without the metric count for `hours` only.

        Raises RunError if an evaluation lacks the metric, because then no evaluation has it.
        """
        self.hours = row["wall_s"] / 3600
        value = row.get(self.cfg.metric)
        if value is None:
            measured = [key for key in row if key.startswith("eval/")]
            if self.needs_metric and measured and self.cfg.metric.startswith("eval/"):
                raise RunError(
                    f"trainer.stop_when.metric={self.cfg.metric}: no such metric{nearest(self.cfg.metric, measured)}"
                )
            return
        self.latest.append(value)
        self.since_best += 1
        if value > self.best:
            self.best = value
            self.since_best = 0

    def reason(self) -> str | None:
        """Returns why the run ends after the rows so far, or None."""
        cfg = self.cfg
        if len(self.latest) == cfg.times:
            if cfg.at_least is not None and min(self.latest) >= cfg.at_least:
                return f"{cfg.metric} was at least {cfg.at_least:g}{_times(cfg.times)}"
            if cfg.at_most is not None and max(self.latest) <= cfg.at_most:
                return f"{cfg.metric} was at most {cfg.at_most:g}{_times(cfg.times)}"
        if cfg.plateau is not None and self.since_best >= cfg.plateau:
            return f"{cfg.metric} has not risen above {self.best:g}{_times(cfg.plateau)}"
        if cfg.hours is not None and self.hours >= cfg.hours:
            return f"it trained for {self.hours:.3g} hours"
        return None


def _times(count: int) -> str:
    if count == 1:
        return ""
    return f" {count} times in a row"
