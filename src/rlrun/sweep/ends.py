"""Checks both ends of every range before a sweep starts, as values that the user types are checked.

Which values an algorithm accepts is known to its code, which needs torch. The check is therefore a process of its own,
`python -m rlrun.sweep.ends`, so that the driver stays small. It reads a JSON list of command lines from stdin, and
writes a JSON list of faults to stdout.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

from rlrun.config.compose import literal
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.errors import ConfigError, RunError
from rlrun.sweep.space import Space


def check_ends(space: Space, runs: Sequence[Sequence[str]]) -> None:
    """Raises ConfigError with a line for each end of a range that a run would refuse. runs: the words of each run."""
    lines = []
    for words in runs:
        for dimension in space.dimensions:
            lines += [[*words, f"{dimension.key}={literal(end)}"] for end in dimension.range.ends()]
    checked = subprocess.run([sys.executable, "-m", __name__], input=json.dumps(lines).encode(), capture_output=True)
    if checked.returncode:
        raise RunError(f"the check of the space failed: {checked.stderr.decode(errors='replace').strip()[-500:]}")
    if faults := json.loads(checked.stdout):
        raise ConfigError(*faults)


def faults_of(lines: Sequence[Sequence[str]]) -> list[str]:
    """Returns the faults of command lines, each once."""
    from rlrun import registry
    from rlrun.run.assemble import check_ranges

    found: dict[str, None] = {}
    for words in lines:
        try:
            (job,) = jobs(words)
            registry.load(job.values["plugins"])
            check_ranges(run_config(job.values))
        except ConfigError as error:
            found |= dict.fromkeys(error.faults)
    return [*found]


if __name__ == "__main__":
    print(json.dumps(faults_of(json.load(sys.stdin))))
