"""Implements `rlrun report`, which writes curves, statistics and intervals over runs as HTML, pictures and tables."""

import contextlib
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun import files
from rlrun.cli import settings
from rlrun.config.stored import SWEEP
from rlrun.errors import ConfigError, RlrunError, printable

if TYPE_CHECKING:
    from rlrun.report.page import Report
    from rlrun.report.runs import Skipped, StoredRun

USAGE = "rlrun report PATHS... [out=report] [by=algo.gamma] [baseline=PATHS] [steps=1e5,5e5] [score=KEY]"
HELP = f"""\
usage: {USAGE}
       rlrun report SWEEP [out=SWEEP]

Groups all runs at or below PATHS by algorithm and environment, and by arguments of the environment that differ. Writes
OUT/index.html: learning curves, training returns and losses, final and best scores, performance profiles, probabilities
of improvement, time and memory, differing configs, and skipped folders. Symbolic links are followed only if PATHS names
them.

If PATHS is the folder of a sweep, writes OUT/report.html: winners, history, rungs, importances, slices, parallel
coordinates, score against time, failures, and every trial.

  out=report           folder to write to; of a sweep by default its own folder
  by=algo.gamma        also group by this key of the config; by=algo.gamma,seed: by several keys
  baseline=PATHS       compare each method with the same method in these runs; separate several paths with commas
  steps=1e5,5e5        steps in the table of scores; default: quarters of the shortest method
  score=eval/return_mean   metric that is compared, a key of metrics.jsonl

  rlrun report runs/
  rlrun report runs/sac-* by=algo.tau
  rlrun report runs/mine baseline=runs/theirs out=compared
  rlrun report runs/sweeps/ppo-CartPole"""

RULES = {
    "out": settings.PATH,
    "by": settings.ValueRule("keys of the config, with commas", lambda value: isinstance(value, str)),
    "baseline": settings.PATH,
    "steps": settings.ValueRule("whole numbers, with commas", lambda value: _whole(value) is not None),
    "score": settings.ValueRule("a key of metrics.jsonl", lambda value: isinstance(value, str) and bool(value)),
}


def report(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, RULES)
    if not places:
        raise ConfigError(f"no runs given; usage: {USAGE}")
    command = shlex.join(["rlrun", "report", *words])
    if any(os.path.lexists(os.path.join(place, SWEEP)) for place in places):
        return _sweep_report(places, given, command)
    with contextlib.chdir(Path(__file__).parent):  # matplotlib would read a matplotlibrc in the current folder
        import matplotlib  # noqa: F401
    began = time.perf_counter()
    out = Path(given.get("out", "report"))
    made = build(places, given, command)
    try:
        if "out" not in given:  # the default name may be an untrusted symbolic link, which is refused
            files.make_folder(out)
        page = made.write(out)
    except OSError as error:
        raise RlrunError(f"{error.filename or out}: cannot be written ({error.strerror})") from None
    for line in _remarks(made):
        print(printable(line))
    plural = "s" * (len(made.runs) != 1)
    left_out = len(made.comparison.uncounted)
    counted = f" ({len(made.runs) - left_out} counted)" if left_out else ""
    print(printable(f"{page}: {len(made.runs)} run{plural}{counted}, {time.perf_counter() - began:.1f} s"))
    return 0


def _sweep_report(places: Sequence[str], given: dict[str, Any], command: str) -> int:
    """Writes the page of a sweep. Returns the exit code."""
    from rlrun.sweep import page, stored

    others = {key: value for key, value in given.items() if key != "out"}
    faults = [f"{key}={value}: is for runs; the page of a sweep takes only out=..." for key, value in others.items()]
    if len(places) > 1:
        faults.append(f"{places[0]} and others: the page of a sweep is about one sweep; name its folder alone")
    if faults:
        raise ConfigError(*faults)
    began = time.perf_counter()
    found = stored.read(Path(places[0]))
    out = Path(given.get("out", places[0]))
    try:
        path = page.write(found, out, command)
    except OSError as error:
        raise RlrunError(f"{error.filename or out}: cannot be written ({error.strerror})") from None
    print(printable(f"{path}: {len(found.trials)} trials, {time.perf_counter() - began:.1f} s"))
    return 0


def _remarks(made: "Report") -> Iterator[str]:
    """Yields lines about runs that were left out, averages over different configs, and methods that differ in more than
    their algorithm."""
    from rlrun.report.tables import conditions, mixtures

    for folder in made.skipped:
        yield f"skipped {folder.path}: {folder.reason}"
    for path, reason in made.comparison.uncounted.items():
        yield f"not counted {path}: {reason}"
    for line in mixtures(made.comparison):
        yield f"configs differ, {line}"
    for line in conditions(made.comparison):
        yield f"methods differ on {line} (unequal.csv)"


def build(places: Sequence[str], given: dict[str, Any], command: str) -> "Report":
    """Returns the report, which is not written yet.

    Raises ConfigError if there are no runs to report, or if no run has a key that the user names.
    """
    from rlrun.dotted import ABSENT, lookup
    from rlrun.report.compare import BASELINE, SCORE, compare, environments, joined
    from rlrun.report.page import Report

    by = _names(given.get("by", ""))
    score = given.get("score", SCORE)
    runs, skipped = _read(places)
    faults = []
    for key in by:
        if all(lookup(key, run.config) is ABSENT for run in runs):
            faults.append(f"by={key}: no run has this key")
    if "score" in given and all(run.last(score) is None for run in runs):
        faults.append(f"score={score}: no run has this key")
    if faults:
        raise ConfigError(*faults)
    baseline: list[StoredRun] = []
    baseline_skipped: list[Skipped] = []
    if "baseline" in given:
        baseline, baseline_skipped = _read(_names(given["baseline"]))
    baseline_paths = {run.path.resolve() for run in baseline}
    runs = [run for run in runs if run.path.resolve() not in baseline_paths]
    if not runs:
        raise ConfigError(f"baseline={given['baseline']}: contains all runs, so none is left to compare with it")
    envs = environments([*runs, *baseline], by)
    comparison = joined(compare(runs, by, score, envs=envs), compare(baseline, by, score, BASELINE, envs))
    steps = _whole(given.get("steps", "")) or []
    return Report(comparison, [*runs, *baseline], [*skipped, *baseline_skipped], score, by, steps, command)


def _read(places: Sequence[str]) -> "tuple[list[StoredRun], list[Skipped]]":
    """Returns the runs at or below these places, and the skipped folders. Raises ConfigError if there are no runs."""
    from rlrun.report.runs import read

    runs, skipped = read(map(Path, places))
    if not runs:
        raise ConfigError(*[f"{folder.path}: {folder.reason}" for folder in skipped])
    return runs, skipped


def _names(text: str) -> list[str]:
    """Returns the parts of a text that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _whole(value: Any) -> list[int] | None:
    """Parses steps such as `1e5,5e5`. Returns None if one is not a whole number."""
    steps = []
    for part in _names(str(value)):
        try:
            step = float(part)
        except ValueError:
            return None
        if step < 0 or not step.is_integer():
            return None
        steps.append(int(step))
    return steps
