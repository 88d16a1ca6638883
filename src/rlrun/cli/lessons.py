"""Implements `rlrun doctor --learn`, which trains three agents and says whether they learn on this machine."""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rlrun.config.compose import literal
from rlrun.config.jobs import jobs
from rlrun.errors import RlrunError, RunError
from rlrun.rundir import SUMMARY, read_json


class Lesson(NamedTuple):
    """A short run, and the return that it reaches with any seed unless something is broken."""

    words: str
    total_steps: int
    at_least: float


LESSONS = (
    Lesson("algo=cem env=CartPole", 50_000, 300.0),
    Lesson("algo=ppo env=CartPole", 15_000, 300.0),
    Lesson("algo=sac env=Pendulum network.hidden=[64,64]", 6_000, -500.0),
)


def failed() -> list[str]:
    """Trains the agents, prints what each reached, and returns a line for each that did not learn."""
    print("training three agents for half a minute", flush=True)
    problems = []
    for lesson in LESSONS:
        started = time.monotonic()
        try:
            value = _trained(lesson)
        except RlrunError as error:
            problems.append(f"{lesson.words}: {error}")
            continue
        seconds = time.monotonic() - started
        line = f"{lesson.words}: return {value:,.1f} after {lesson.total_steps:,} steps in {seconds:.0f} s"
        print(line, flush=True)
        if value < lesson.at_least:
            problems.append(f"{line}, but at least {lesson.at_least:,.0f} was expected")
    print()
    return problems


def _trained(lesson: Lesson) -> float:
    """Returns the final return of a run, whose folder is removed."""
    from rlrun.run.job import train_job

    steps = lesson.total_steps
    words = [*lesson.words.split(), f"trainer.total_steps={steps}", f"trainer.eval_every={steps}", "logger=[]"]
    with tempfile.TemporaryDirectory() as folder:
        (job,) = jobs([*words, f"run_dir={literal(str(Path(folder) / 'run'))}"])
        done = train_job(job)
        if done.fault:
            raise RunError(done.fault)
        value = read_json(done.path / SUMMARY)["final_return"]
    assert isinstance(value, int | float)
    return value
