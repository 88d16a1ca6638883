"""Suggests settings, before a run that would learn at most once, and after a run whose time one phase dominated."""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from rlrun.operating_system import load_average

if TYPE_CHECKING:
    from rlrun.config.schema import RunConfig

PHASES = {"env": "stepping environments", "update": "updates"}  # phases with advice, and their names in messages
WORTH_IT_S = 60.0  # shorter runs get no advice
BOTTLENECK_SHARE = 0.5  # minimum fraction of the wall time for a phase to be the bottleneck
BACKGROUND_CORES = 0.5  # load of an otherwise idle machine
SLOW_STEP_S = 2e-4  # for faster environment steps, communication with a worker takes longer than the step


def start_hint(setting: str, first_update: int, total_steps: int) -> str | None:
    """Returns one line of advice before a run whose agent would learn at most once, or None.

    first_update: number of transitions before the first update. setting: the config setting that determines it.
    """
    if first_update < total_steps:
        return None
    return (
        f"{setting}: the first update comes after {first_update:,} steps and the run ends after {total_steps:,}, so "
        "the agent learns once or never; set a smaller value, fewer environments or a larger trainer.total_steps"
    )


def schedule_hints(last_points: Iterable[tuple[str, int]], total_steps: int) -> Iterator[str]:
    """Yields a line for each schedule whose last value the run does not reach.

    last_points: the config setting of each schedule, and the step of its last value.
    """
    for setting, step in last_points:
        if step > total_steps:
            yield f"{setting}: its value at step {step:,} is not reached, because the run ends at step {total_steps:,}"


def hint(summary: dict[str, Any], times: dict[str, Any], config: "RunConfig") -> str | None:
    """Returns one line of advice after a run, from its latest `time/*` metrics, or None if there is no advice."""
    if summary["status"] != "done" or summary["wall_s"] < WORTH_IT_S:
        return None
    shares = {phase: times.get(f"time/share_{phase}", 0.0) for phase in PHASES}
    phase = max(shares, key=lambda name: shares[name])
    share = shares[phase]
    seconds_per_step = share / max(times.get("time/steps_per_s", 0.0), 1e-9)
    tries = settings(phase, seconds_per_step, config)
    if share < BOTTLENECK_SHARE or not tries:
        return None
    what = PHASES[phase]
    return f"{what} took {share:.0%} of the time: try {' '.join(tries)}"


def settings(phase: str, seconds: float, config: "RunConfig") -> list[str]:
    """Returns settings to try if this phase is the bottleneck. seconds: its time per transition."""
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
        # on an overloaded machine, threads that wait for each other are slower than a single thread
        return ["trainer.threads=1"]
    if trainer.engine == "auto":
        return ["trainer.engine=compile"]
    if trainer.threads is None and idle > BACKGROUND_CORES:
        return ["trainer.threads=2"]
    return []


def idle_cores() -> float:
    """Returns the number of cores that were idle in the last five minutes; negative if the load exceeded the cores."""
    return (os.cpu_count() or 1) - load_average(5)
