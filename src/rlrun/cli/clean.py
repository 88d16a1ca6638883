"""Implements `rlrun clean`, which removes old snapshots of runs."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import settings
from rlrun.cli.columns import print_columns
from rlrun.errors import ConfigError, RlrunError, printable
from rlrun.lock import holder

USAGE = "rlrun clean [RUNS...] [--yes]"
HELP = f"""\
usage: {USAGE}

Lists the snapshots that the runs at or below RUNS (default: runs/) do not need, and removes them if you answer yes.
The latest snapshot and the best one stay, so every run can still be resumed and evaluated. The post-mortem of a fault
is removed if the run has passed the step of the fault. Runs in use are left alone, and links are not followed.

  --yes   remove them without asking; without a terminal and without --yes, they are only listed"""


def clean(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, _ = settings.read([word for word in words if word != "--yes"], {})
    for place in places:
        if not Path(place).is_dir():
            raise ConfigError(f"{place}: no such folder")
    runs = _list(list(map(Path, places or ["runs"])))
    if not runs:
        print("nothing to remove")
        return 0
    if "--yes" in words or _agreed(len(runs)):
        return _remove(runs)
    print("nothing was removed; --yes removes without asking")
    return 0


def _list(places: list[Path]) -> list[Path]:
    """Prints the removable folders of each run. Returns the runs that have such folders."""
    from rlrun import files
    from rlrun.report.runs import find
    from rlrun.run.cleaning import freed_bytes, removable
    from rlrun.telemetry.view import size

    rows = []
    runs = []
    total = 0
    for path in dict.fromkeys(path for place in places for path, reason in find(place) if not reason):
        try:
            files.check_folder(path)
            folders = removable(path)
            freed = freed_bytes(folders)
        except RlrunError as error:
            print(printable(f"skipped {error.faults[0]}"))
            continue
        if not folders:
            continue
        note = ""
        if holder(path):
            note = "in use: left alone"
        else:
            runs.append(path)
            total += freed
        rows.append((str(path), ", ".join(folder.name for folder in folders), size(freed), note))
    if rows:
        print_columns([("run", "not needed", "frees", ""), *rows])
    if runs:
        print(f"{len(runs)} run{'s' * (len(runs) != 1)}, {size(total)}")
    return runs


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
    from rlrun.telemetry.view import size

    freed, code = 0, 0
    for path in runs:
        try:
            freed += cleaning.clean(path)
        except RlrunError as error:
            code = error.exit_code
            for fault in error.faults:
                print(printable(f"error: {fault}"), file=sys.stderr)
    print(f"freed {size(freed)}")
    return code
