"""What takes most of a run's time, and a setting that may help. Advice only: nothing here changes a run."""

import os
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rlrun.config.schema import RunConfig

WORTH_IT_S = 60.0  # a shorter run needs no advice
MOST = 0.5  # share of the wall time from which a phase is the bottleneck
CROWD = 0.5  # cores; so much of one is wanted by something on any machine
SLOW_S = 2e-4  # of an environment's step: below, handing it to another process costs more than the step


def hint(summary: dict[str, Any], times: dict[str, Any], config: "RunConfig") -> str | None:
    """One line for a run that is done, from its newest `time/...` values; None where there is nothing to say."""
    if summary["status"] != "done" or summary["wall_s"] < WORTH_IT_S:
        return None
    phase = max(("env", "update"), key=lambda name: times.get(f"time/share_{name}", 0.0))
    share = times.get(f"time/share_{phase}", 0.0)
    tries = settings(phase, share / max(times.get("time/steps_per_s", 0.0), 1e-9), config)
    if share < MOST or not tries:
        return None
    what = {"env": "stepping environments", "update": "updates"}[phase]
    return f"{what} took {share:.0%} of the time: try {' '.join(tries)}"


def settings(phase: str, seconds: float, config: "RunConfig") -> list[str]:
    """What to try against a phase that takes so many seconds per step of one environment."""
    env, trainer = config.env, config.trainer
    if phase == "env":
        more = ["env.num_envs=8"] if env.num_envs < 8 else []
        return [*more, "env.backend=async"] if env.backend == "sync" and seconds > SLOW_S else more
    if config.device == "cpu" and torch.cuda.is_available():
        return ["device=cuda"]
    idle = idle_cores()
    if (trainer.threads or 1) > 1 and idle < -CROWD:  # threads that wait for one another are slower than one alone
        return ["trainer.threads=1"]
    if trainer.engine == "auto":
        return ["trainer.engine=compile"]
    return ["trainer.threads=2"] if trainer.threads is None and idle > CROWD else []


def idle_cores() -> float:
    """How many nobody wanted in the last five minutes; negative where more was wanted than there is."""
    return (os.cpu_count() or 1) - os.getloadavg()[1]
