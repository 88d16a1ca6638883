"""`rlrun status`: every run with its state, how far it is, and when it will be done."""

import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlrun.cli import settings
from rlrun.cli.columns import print_columns
from rlrun.errors import ConfigError, printable

if TYPE_CHECKING:
    from rlrun.report.runs import Run

HELP = """\
usage: rlrun status [PATHS...]

Every run at or below the given folders (runs/, if none is given).

  running      a process holds it; `ago` is the time since its last row
  done         it came to its end
  resumable    stopped, failed or killed: `rlrun resume RUN` goes on from its latest snapshot, whose step is shown
               where it is not that of the last row
  dead         stopped, failed or killed before its first snapshot: `rlrun resume RUN` starts it again"""

SNAPSHOT = re.compile(r"step_([0-9]{9,18})")  # a folder's name
RECENT = 10  # rows behind the speed that the time left is told from


def status(words: Sequence[str]) -> int:
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, _ = settings.read(words, {})
    from rlrun.report.runs import read

    for place in places:
        if not Path(place).is_dir():
            raise ConfigError(f"{place}: no such folder")
    if not places and not Path("runs").is_dir():
        print("no runs here yet (no folder runs/)")
        return 0
    runs, skipped = read(map(Path, places or ["runs"]))
    if runs:
        print_columns([("state", "progress", "step", "return", "left", "ago", "host", "run"), *map(_row, runs)])
    for run in runs:
        for fault in run.faults:
            print(printable(f"{run.path}: {fault}"))
    for folder in skipped:
        print(printable(f"skipped {folder.path}: {folder.reason}"))
    return 0


def _row(run: "Run") -> tuple[str, ...]:
    from rlrun.telemetry.view import clock, number

    value = run.last("eval/return_mean")
    value = run.last("train/return_mean") if value is None else value
    running = run.state == "running"
    at = _last_snapshot(run) if run.state == "resumable" else None
    failed = " (failed)" if not running and run.summary.get("status") == "failed" else ""
    return (
        run.state + failed,
        f"{min(1.0, run.step / max(1, run.total_steps)):4.0%}",
        f"{run.step:,}" + (f" (resumes at {at:,})" if at is not None and at != run.step else ""),
        "" if value is None else number(value),
        clock(_left_s(run)) if running else "",
        clock(_ago_s(run)) if running else "",
        "" if run.host == socket.gethostname() else run.host,
        str(run.path),
    )


def _last_snapshot(run: "Run") -> int | None:
    """The step that a resume goes on from; the last row may be older, or lost with what came after the snapshot."""
    found = [SNAPSHOT.fullmatch(path.name) for path in (run.path / "snapshots").glob("step_*")]
    return max((int(match[1]) for match in found if match), default=None)


def _left_s(run: "Run") -> float | None:
    """Seconds left at the speed of the last rows."""
    rows = [row for row in run.rows[-RECENT:] if "wall_s" in row]
    if len(rows) < 2 or rows[-1]["wall_s"] <= rows[0]["wall_s"]:
        return None
    speed = (rows[-1]["step"] - rows[0]["step"]) / (rows[-1]["wall_s"] - rows[0]["wall_s"])
    return max(0, run.total_steps - run.step) / speed if speed > 0 else None


def _ago_s(run: "Run") -> float | None:
    try:
        return max(0.0, time.time() - (run.path / "metrics.jsonl").stat().st_mtime)
    except OSError:
        return None
