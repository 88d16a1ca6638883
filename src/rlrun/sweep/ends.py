"""Checks both ends of every range before a sweep starts, like values that the user types.

Only the code of an algorithm says which values it accepts, and that code imports torch. To keep the driver small, the
check runs in a process of its own, `python -m rlrun.sweep.ends faults`, which reads the arguments of `faults_of` from
stdin as a JSON list, and writes a JSON list of faults to stdout. With `schedulable`, it calls `schedulable_of` instead.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

from rlrun import dotted
from rlrun.config import sources
from rlrun.config.compose import Composer, literal
from rlrun.config.jobs import jobs, jobs_of
from rlrun.config.schema import run_config
from rlrun.errors import ConfigError, RunError
from rlrun.sweep.space import Space
from rlrun.sweep.untrusted import Confirmed


def check_ends(space: Space, runs: Sequence[Sequence[str]], confirmed: Confirmed | None) -> None:
    """Raises ConfigError with a line for each end of a range that a run would refuse.

    runs: the words of the runs, by environment. confirmed: None for a sweep that the user has typed.
    """
    lines = []
    for words in runs:
        for dimension in space.dimensions:
            lines += [[*words, f"{dimension.key}={literal(end)}"] for end in dimension.range.ends()]
    typed = None
    if confirmed is not None:
        typed = confirmed.typed
    if faults := _queried("faults", lines, typed):
        raise ConfigError(*faults)


def schedulable(words: Sequence[str]) -> list[str]:
    """Returns the dotted keys of the numbers that may change during a run with these words."""
    return _queried("schedulable", [words])


def _queried(query: str, *arguments: object) -> list[str]:
    """Returns the output of a query, `faults` or `schedulable`, which runs in a process that imports torch."""
    data = json.dumps(arguments).encode()
    process = subprocess.run([sys.executable, "-m", __name__, query], input=data, capture_output=True)
    if process.returncode:
        raise RunError(f"the check of the space failed: {process.stderr.decode(errors='replace').strip()[-500:]}")
    found: list[str] = json.loads(process.stdout)
    return found


def schedulable_of(lines: Sequence[Sequence[str]]) -> list[str]:
    """Returns the dotted keys of the numbers that may change during a run. lines: one, with the words of the run."""
    from rlrun.schedules.numbers import schedulable
    from rlrun.settings import registry

    (job,) = jobs(lines[0])
    registry.load(job.values["plugins"])
    algo = job.values["algo"]
    keys = [f"algo.{key}" for key in sorted(schedulable(algo))]
    return [key for key in keys if isinstance(dotted.lookup(key, job.values), int | float)]


def faults_of(lines: Sequence[Sequence[str]], typed: Sequence[str] | None = None) -> list[str]:
    """Returns the faults of command lines, each once.

    typed: for a sweep that was read from disk, the words with which the user confirms that it reaches outside. A line
    that reaches outside without being confirmed is a fault, and nothing that it names is imported.
    """
    from rlrun.run.assemble import check_ranges
    from rlrun.settings import registry

    found: dict[str, None] = {}
    composers: dict[str, Composer] = {}
    confirmed = None
    if typed is not None:
        confirmed = Confirmed(typed)
    for line in lines:
        try:
            if confirmed is not None:
                confirmed.check_run(line)
            words = sources.by_name(line)
            folders = " ".join(map(str, sources.folders_of(words)))
            if folders not in composers:
                composers[folders] = Composer.of(words)
            (job,) = jobs_of(words, composers[folders])
            registry.load(job.values["plugins"])
            check_ranges(run_config(job.values))
        except ConfigError as error:
            found |= dict.fromkeys(error.faults)
    return [*found]


QUERIES = {"faults": faults_of, "schedulable": schedulable_of}

if __name__ == "__main__":
    print(json.dumps(QUERIES[sys.argv[1]](*json.load(sys.stdin))))
