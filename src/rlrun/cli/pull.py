"""Implements `rlrun pull`, which downloads a shared run from the Hugging Face hub."""

from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import settings
from rlrun.cli.push import REPO, check_absent
from rlrun.errors import PROGRAM, ConfigError, printable, quoted
from rlrun.rundir import RUNS

USAGE = "rlrun pull owner/name [into=DIR]"
HELP = f"""\
usage: {USAGE}

Downloads a run that `rlrun push` uploaded. Every file must have the SHA-256 that the run's list of files has for it,
and the snapshot is verified as always; nothing in it is executed. `rlrun eval`, `rlrun report` and `rlrun.load` take
the folder. It holds weights without replay, so that `init_from=DIR` starts a new run from them, and no run can resume.

  into=DIR             a new folder; default: runs/owner/name

Needs pip install 'rlrun[hub]'.

  rlrun pull someone/sac-cheetah
  rlrun eval runs/someone/sac-cheetah"""

RULES = {"into": settings.PATH}
TAKES_RUNS = False


def pull(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, RULES)
    if len(places) != 1:
        raise ConfigError(f"one repository at a time; usage: {USAGE}")
    (repo,) = places
    if not REPO.fullmatch(repo):
        raise ConfigError(f"{repo}: must be owner/name; usage: {USAGE}")
    target = RUNS / repo
    if "into" in given:
        target = Path(given["into"])
    check_absent(target)
    from rlrun.hub.exchange import pull as download

    path = download(repo, target)
    print(printable(f"{path}: verified; {PROGRAM} eval {quoted(path)}"))
    return 0
