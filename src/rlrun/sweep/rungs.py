"""The steps at which the runs of a trial pause, where it is decided whether they train on."""

from typing import Any

from rlrun.errors import ConfigError
from rlrun.sweep.settings import PbtConfig, SweepConfig


def steps(cfg: SweepConfig, values: dict[str, Any]) -> list[int]:
    """Returns the step of each rung, rounded up to an evaluation. The last is `trainer.total_steps`.

    values: the composed config. Raises ConfigError if the runs are not evaluated there.
    """
    trainer = values["trainer"]
    total, every = trainer["total_steps"], trainer["eval_every"]
    if not trainer["eval_episodes"]:
        raise ConfigError("trainer.eval_episodes=0: a sweep compares evaluations")
    if cfg.kind.name == "search" and cfg.prune.name == "none":
        return [total]
    if not every:
        raise ConfigError("trainer.eval_every=0: rungs need evaluations; set it, or prune=none")
    if isinstance(cfg.kind, PbtConfig):
        interval = cfg.kind.every or -(-total // 20)  # a twentieth, rounded up
        wanted = [*range(interval, total, interval)]
    else:
        wanted = [round(fraction * total) for fraction in cfg.rungs]
    found = []
    for step in wanted:
        step = -(-max(step, 1) // every) * every
        if step < total and step not in found:
            found.append(step)
    return [*found, total]
