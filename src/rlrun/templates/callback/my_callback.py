"""Logs the best return of an episode, and ends the run when evaluations are good enough.

pytest my_callback/
rlrun train algo=ppo env=CartPole plugins=[./my_callback/my_callback.py] callbacks=[my_callback]
"""

from collections.abc import Mapping
from typing import Any

from rlrun.core.callback import Callback
from rlrun.settings import config, register


@register("callback", "my_callback")
class MyCallback(Callback):
    """Reads the run and changes nothing. A callback that changes the run names what it changes in `changes`."""

    @config
    class Config:
        enough: float | None = None  # mean return of an evaluation that ends the run; null: it never ends early

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        self.best: float | None = None  # best return of an episode so far

    def on_episode(self, episode_return: Any, length: int) -> None:
        """Called for every training episode that ended."""
        if self.best is None or episode_return > self.best:
            self.best = episode_return

    def on_row(self, row: Mapping[str, float]) -> None:
        """Called with every row of metrics. The number that it logs is the metric custom/best_return of this row."""
        if self.best is not None:
            self.log("best_return", self.best)

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Called after an evaluation, with the metrics eval/*."""
        mean = metrics["eval/return_mean"]
        if self.cfg.enough is not None and mean >= self.cfg.enough:
            self.run.stop(f"an evaluation has the mean return {mean:.1f}")

    def get_extra_state(self) -> dict[str, Any]:
        """Returns what snapshots save. A resumed run passes it to `set_extra_state`."""
        return {"best": self.best}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.best = state["best"]
