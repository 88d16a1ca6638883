"""The steps at which the runs of a trial pause, where it is decided whether they train on."""

from typing import Any

from rlrun.dotted import show
from rlrun.errors import ConfigError
from rlrun.sweep.settings import PbtConfig, SweepConfig


def steps(cfg: SweepConfig, values: dict[str, Any]) -> list[int]:
    """Returns the step of each rung, rounded up to an evaluation. The last is `trainer.total_steps`. The rungs of a
    population are at least a rollout apart.

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
    for key, needed in (("period_unit", "steps"), ("total_updates", None), ("num_evals", None)):
        if trainer[key] != needed:
            raise ConfigError(
                f"trainer.{key}={trainer[key]}: rungs are in steps; set it to {show(needed)}, or prune=none"
            )
    if isinstance(cfg.kind, PbtConfig):
        interval = cfg.kind.every or _quotient(total, 20)
        wanted = [*range(interval, total, interval)]
        # runs pause after whole rollouts, so of two rungs within one rollout, the first would have no effect
        rollout = values["env"]["num_envs"] * values["algo"]["loop"].get("rollout_steps", 1)
    else:
        wanted = [round(fraction * total) for fraction in cfg.rungs]
        rollout = 1
    found = []
    rollouts = 0  # number of rollouts up to the last rung in `found`
    for step in wanted:
        step = _quotient(max(step, 1), every) * every
        if rollouts < _quotient(step, rollout) < _quotient(total, rollout):
            found.append(step)
            rollouts = _quotient(step, rollout)
    if cfg.kind.name == "pbt" and not found:
        raise ConfigError(
            f"kind=pbt: no trial could be copied before its end at trainer.total_steps={total}; evaluate more often "
            f"(trainer.eval_every={every}), or train longer than one rollout ({rollout} steps)"
        )
    return [*found, total]


def _quotient(steps: int, size: int) -> int:
    """Returns steps / size, rounded up."""
    return -(-steps // size)
