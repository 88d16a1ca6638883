"""Implements `rlrun doctor --learn`, which trains three agents and checks that they learn on this machine."""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rlrun.config.compose import literal
from rlrun.config.jobs import jobs
from rlrun.errors import RlrunError, RunError
from rlrun.rundir import SUMMARY, read_json


class LearningCheck(NamedTuple):
    """A short run, and the return that it reaches with any seed unless something is broken."""

    settings: str  # as typed
    total_steps: int
    at_least: float


CHECKS = (
    LearningCheck("algo=cem env=CartPole", 50_000, 300.0),
    LearningCheck("algo=ppo env=CartPole", 15_000, 300.0),
    LearningCheck("algo=sac env=Pendulum network.hidden=[64,64]", 6_000, -500.0),
)


def problems() -> list[str]:
    """Trains the agents and prints what each reached. Returns a line for each that did not learn."""
    print("training three agents for half a minute", flush=True)
    found = []
    for check in CHECKS:
        started = time.monotonic()
        try:
            value = _final_return(check)
        except RlrunError as error:
            found.append(f"{check.settings}: {error}")
            continue
        seconds = time.monotonic() - started
        line = f"{check.settings}: return {value:,.1f} after {check.total_steps:,} steps in {seconds:.0f} s"
        print(line, flush=True)
        if value < check.at_least:
            found.append(f"{line}, but at least {check.at_least:,.0f} was expected")
    print()
    return found


def _final_return(check: LearningCheck) -> float:
    """Trains a run in a temporary folder, and returns its final return. Raises RunError if it fails."""
    from rlrun.run.job import train_job

    steps = check.total_steps
    words = [*check.settings.split(), f"trainer.total_steps={steps}", f"trainer.eval_every={steps}", "logger=[]"]
    with tempfile.TemporaryDirectory() as folder:
        (job,) = jobs([*words, f"run_dir={literal(str(Path(folder) / 'run'))}"])
        ended = train_job(job)
        if ended.fault:
            raise RunError(ended.fault)
        value = read_json(ended.path / SUMMARY)["final_return"]
    assert isinstance(value, int | float)
    return value
