"""Suggests a setting against what takes most of a run's time. Advice only: nothing here changes a run."""

import os
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rlrun.config.schema import RunConfig

WORTH_IT_S = 60.0  # a shorter run needs no advice
BOTTLENECK_SHARE = 0.5  # share of the wall time from which a phase is the bottleneck
BACKGROUND_CORES = 0.5  # load that any machine has
SLOW_STEP_S = 2e-4  # of an environment's step: below, sending it to another process costs more than the step


def hint(summary: dict[str, Any], times: dict[str, Any], config: "RunConfig") -> str | None:
    """One line of advice after a run, from its newest `time/...` values; None without advice."""
    if summary["status"] != "done" or summary["wall_s"] < WORTH_IT_S:
        return None
    phase = max(("env", "update"), key=lambda name: times.get(f"time/share_{name}", 0.0))
    share = times.get(f"time/share_{phase}", 0.0)
    tries = settings(phase, share / max(times.get("time/steps_per_s", 0.0), 1e-9), config)
    if share < BOTTLENECK_SHARE or not tries:
        return None
    what = {"env": "stepping environments", "update": "updates"}[phase]
    return f"{what} took {share:.0%} of the time: try {' '.join(tries)}"


def settings(phase: str, seconds: float, config: "RunConfig") -> list[str]:
    """Settings to try against a phase. `seconds`: what it takes per step of one environment."""
    env, trainer = config.env, config.trainer
    if phase == "env":
        tries = []
        if env.num_envs < 8:
            tries.append("env.num_envs=8")
        if env.backend == "sync" and seconds > SLOW_STEP_S:
            tries.append("env.backend=async")
        return tries
    if config.device == "cpu" and torch.cuda.is_available():
        return ["device=cuda"]
    idle = idle_cores()
    if (trainer.threads or 1) > 1 and idle < -BACKGROUND_CORES:
        # threads that wait for one another are slower than one alone
        return ["trainer.threads=1"]
    if trainer.engine == "auto":
        return ["trainer.engine=compile"]
    if trainer.threads is None and idle > BACKGROUND_CORES:
        return ["trainer.threads=2"]
    return []


def idle_cores() -> float:
    """Cores that were idle in the last five minutes; negative if there was more load than cores."""
    return (os.cpu_count() or 1) - os.getloadavg()[1]
