"""Implements `rlrun status`, which lists runs with their state, progress and time left."""

import re
import socket
import time
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from rlrun.cli import settings
from rlrun.cli.columns import print_columns
from rlrun.errors import ConfigError, printable

if TYPE_CHECKING:
    from rlrun.report.runs import StoredRun

HELP = """\
usage: rlrun status [PATHS...]

Lists every run at or below the given folders (default: runs/), with the typed settings in which they differ. If several
runs have the same environment, the one with the best evaluation is named at the end: its best agent is what `rlrun
export` and `rlrun eval` take.

  running      a process trains the run; `ago` is the time since its last log row
  done         the run has reached its total number of steps, or a rule of trainer.stop_when ended it
  resumable    paused, stopped, failed or killed: `rlrun resume RUN` continues from its latest snapshot; the step of
               that snapshot is shown if it differs from that of the last log row
  shared       downloaded by `rlrun pull`: can be evaluated and start new runs (init_from=RUN), but cannot be resumed
  dead         stopped, failed or killed before its first snapshot: `rlrun resume RUN` starts the run again"""

HEADINGS = ("state", "progress", "step", "return", "left", "ago", "host", "algo", "env", "settings", "run")
SCORE = "eval/return_mean"
ELSEWHERE = (
    "algo",
    "env",
    "name",
    "run_dir",
    "logger",
    "plugins",
    "resume",
    "submit",
)  # in other columns, or of no effect
TASK = ("env.kwargs", "env.eval_kwargs", "env.wrappers")  # settings with which an environment is another task
LONGEST = 60  # letters of the settings of a run
SNAPSHOT = re.compile(r"step_([0-9]{9,18})")  # folder name of a snapshot
RECENT = 10  # number of last log rows from which the current speed is computed


def status(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
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
        keys = _differing(runs)
        print_columns([HEADINGS, *(_row(run, keys) for run in runs)])
        for line in _best(runs, keys):
            print(printable(line))
    for run in runs:
        for fault in run.faults:
            print(printable(f"{run.path}: {fault}"))
    for folder in skipped:
        print(printable(f"skipped {folder.path}: {folder.reason}"))
    return 0


def _differing(runs: Sequence["StoredRun"]) -> set[str]:
    """Returns the keys that the user typed with different values, or not for all runs."""
    values: dict[str, list[str]] = {}
    for run in runs:
        for key, value in run.typed.items():
            if key not in ELSEWHERE and not key.startswith(("logger.", "submit.")):
                values.setdefault(key, []).append(value)
    return {key for key, typed in values.items() if len(typed) < len(runs) or len({*typed}) > 1}


def _best(runs: Sequence["StoredRun"], keys: Set[str]) -> Iterator[str]:
    """Yields for each environment of several evaluated runs which of them has the best evaluation.

    keys: the settings that differ. Runs with other arguments or wrappers of the environment are not compared.
    """
    from rlrun.telemetry.formatting import number

    by_env: dict[str, list[tuple[float, StoredRun]]] = {}
    for run in runs:
        score = run.most(SCORE)
        if score is not None:
            words = [f"{key}={value}" for key, value in run.typed.items() if key in keys and key.startswith(TASK)]
            by_env.setdefault(" ".join([run.env, *words]), []).append((score, run))
    for env, rivals in by_env.items():
        if len(rivals) > 1:
            score, best = max(rivals, key=lambda one: one[0])
            equal = sum(rival == score for rival, _ in rivals)
            first = f", the first of {equal} equal ones" if equal > 1 else ""
            yield f"best on {env}: {number(score)}, {best.algo}: {best.path}{first}"


def _row(run: "StoredRun", keys: Set[str]) -> tuple[str, ...]:
    """Returns the row of a run. keys: of the settings that are shown."""
    from rlrun.telemetry.formatting import clock, number

    state = run.state
    left = ""
    ago = ""
    if run.state == "running":
        left = clock(_left_s(run))
        ago = clock(_ago_s(run))
    elif run.summary.get("status") == "failed":
        state += " (failed)"
    step = f"{run.step:,}"
    if run.state == "resumable":
        snapshot_step = _last_snapshot(run)
        if snapshot_step is not None and snapshot_step != run.step:
            step += f" (resumes at {snapshot_step:,})"
    last_return = ""
    for key in ("train/return_mean", SCORE):  # evaluations, if there are any
        value = run.last(key)
        if value is not None:
            last_return = number(value)
    host = run.host
    if host == socket.gethostname():
        host = ""
    progress = f"{min(1.0, run.step / max(1, run.total_steps)):4.0%}"
    settings = shorten(" ".join(f"{key}={run.typed[key]}" for key in run.typed if key in keys), LONGEST)
    return state, progress, step, last_return, left, ago, host, run.algo, run.env, settings, str(run.path)


def _last_snapshot(run: "StoredRun") -> int | None:
    """Returns the step of the latest snapshot, or None if there is none."""
    steps = []
    for path in (run.path / "snapshots").glob("step_*"):
        if match := SNAPSHOT.fullmatch(path.name):
            steps.append(int(match[1]))
    return max(steps, default=None)


def _left_s(run: "StoredRun") -> float | None:
    """Returns the seconds left at the speed of the last log rows, or None if the speed is unknown."""
    from rlrun.telemetry.view import warmup_steps

    warmup = warmup_steps(run.config)
    rows = [row for row in run.rows[-RECENT:] if "wall_s" in row and row["step"] >= warmup]
    if len(rows) < 2 or rows[-1]["wall_s"] <= rows[0]["wall_s"]:
        return None
    speed = (rows[-1]["step"] - rows[0]["step"]) / (rows[-1]["wall_s"] - rows[0]["wall_s"])
    if speed <= 0:
        return None
    return max(0, run.total_steps - run.step) / speed


def _ago_s(run: "StoredRun") -> float | None:
    """Returns the seconds since the last log row, or None if there is no metrics.jsonl."""
    try:
        return max(0.0, time.time() - (run.path / "metrics.jsonl").stat().st_mtime)
    except OSError:
        return None
