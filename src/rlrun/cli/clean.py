"""Implements `rlrun clean`, which removes old snapshots of runs."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rlrun.cli import settings
from rlrun.cli.columns import print_columns
from rlrun.errors import ConfigError, RlrunError, printable
from rlrun.lock import holder
from rlrun.rundir import RUNS

USAGE = "rlrun clean [RUNS...] [--yes]"
HELP = f"""\
usage: {USAGE}

Lists the snapshots that the runs at or below RUNS (default: runs/) do not need, and removes them if you answer yes.
The latest snapshot and the best one stay, so every run can still be resumed and evaluated. The post-mortem of a fault
is removed if the run has passed the step of the fault, and so is what killed processes have left in snapshots/. Runs in
use are left alone, and links are not followed.

  --yes   remove them without asking; without a terminal and without --yes, they are only listed"""


OPTIONS = ("--yes",)


def clean(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, {}, OPTIONS)
    for place in places:
        if not Path(place).is_dir():
            raise ConfigError(f"{place}: no such folder")
    folders = [Path(place) for place in places] or [RUNS]
    found = list(_found(folders))
    _print(found)
    runs = [run.path for run in found if not run.in_use]
    if not runs:
        print("nothing else to remove" if found else "nothing to remove")
        return 0
    if "--yes" in given or _agreed(len(runs)):
        return _remove(runs)
    print("nothing was removed; --yes removes without asking")
    return 0


class Removable(NamedTuple):
    """What a run does not need."""

    path: Path  # of the run
    names: list[str]  # of its folders that can be removed
    freed: int  # bytes
    in_use: bool


def _found(places: list[Path]) -> Iterator[Removable]:
    """Yields the runs at or below these places that have something to remove. Prints those that cannot be read."""
    from rlrun import files
    from rlrun.report.runs import find
    from rlrun.run.cleaning import freed_bytes, removable

    for path in dict.fromkeys(path for place in places for path, reason in find(place) if not reason):
        try:
            files.check_folder(path)
            folders = removable(path)
            freed = freed_bytes(folders)
        except RlrunError as error:
            print(printable(f"skipped {error.faults[0]}"), file=sys.stderr)
            continue
        if folders:
            yield Removable(path, [folder.name for folder in folders], freed, holder(path) is not None)


def _print(found: list[Removable]) -> None:
    """Prints what can be removed, and how many bytes that frees."""
    from rlrun.telemetry.formatting import size

    notes = {True: "in use: left alone", False: ""}
    rows = [(str(run.path), ", ".join(run.names), size(run.freed), notes[run.in_use]) for run in found]
    if rows:
        print_columns([("run", "not needed", "frees", ""), *rows])
    free = [run.freed for run in found if not run.in_use]
    if free:
        print(f"{len(free)} run{'s' * (len(free) != 1)}, {size(sum(free))}")


def _agreed(count: int) -> bool:
    """Returns whether the user at the terminal answers yes. Returns False without a terminal."""
    if not sys.stdin.isatty():
        return False
    try:
        answer = input(f"remove these folders of {count} run{'s' * (count != 1)}? [y/N] ")
    except EOFError:
        print()
        return False
    return answer.strip().lower() in ("y", "yes")


def _remove(runs: list[Path]) -> int:
    """Removes the removable folders of the runs. Returns the exit code."""
    from rlrun.run import cleaning
    from rlrun.telemetry.formatting import size

    freed = 0
    code = 0
    for path in runs:
        try:
            freed += cleaning.clean(path)
        except RlrunError as error:
            code = error.exit_code
            for fault in error.faults:
                print(printable(f"error: {fault}"), file=sys.stderr)
    print(f"freed {size(freed)}")
    return code
