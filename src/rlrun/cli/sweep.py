"""Implements `rlrun sweep`, which searches hyperparameters."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlrun.cli.columns import print_columns
from rlrun.config import check, sources
from rlrun.errors import ConfigError, printable

if TYPE_CHECKING:
    from rlrun.sweep.stored import Stored
    from rlrun.sweep.trials import Trial, Trials

HELP = """\
usage: rlrun sweep algo=<name> env=<name> ['<key>=<range>' ...] [<setting>=value ...]
       rlrun sweep status|best SWEEP

Searches hyperparameters: each trial trains a few runs with settings from a space, trials that fall behind are paused,
and the best are measured again with fresh seeds. Everything is in runs/sweeps/<name>, and the same command continues a
sweep that was interrupted or killed, from where it was.

  ranges     log(1e-5,1e-2)  logit(0.9,0.999)  uniform(0,1)  int(1,5)  pow2(64,1024)  choice(a,b,[256,256])
             without a typed range, the space of the algorithm is searched: rlrun show space=sac
  settings   {settings}
  other words are those of `rlrun train`, for all runs

  rlrun sweep algo=ppo env=CartPole trials=16 workers=2
  rlrun sweep algo=sac env=Pendulum 'algo.gamma=logit(0.9,0.999)' 'algo.tau=log(1e-3,5e-2)'
  rlrun sweep best runs/sweeps/ppo-CartPole"""


def sweep(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    from rlrun.sweep.settings import FILE

    if not words or "--help" in words or "-h" in words:
        meanings = sources.notes(FILE).meanings.items()
        width = max(len(key) for key, _ in meanings)
        lines = [f"{key:{width}}  {meaning}" for key, meaning in meanings]
        print(HELP.format(settings=("\n" + " " * 13).join(lines)))
        return 0
    if words[0] in VIEWS:
        return VIEWS[words[0]](words[1:])
    return _run(words)


def _run(words: Sequence[str]) -> int:
    """Runs a sweep, or continues it. Returns the exit code."""
    from rlrun import lock
    from rlrun.cluster.local import local
    from rlrun.sweep.display import open_display
    from rlrun.sweep.plan import plan
    from rlrun.sweep.view import View

    planned = plan(words)
    path = planned.path
    path.mkdir(parents=True, exist_ok=True)
    held = lock.take(path)
    try:
        planned.begin()
        courses = {env: course.steps for env, course in planned.courses.items()}
        display = open_display(View(path, planned.cfg, courses, planned.search.trials))
        driver = planned.driver(local(), display)
        if len(driver.trials):
            print(printable(f"{path}: continues after {len(driver.trials)} of {planned.search.trials} trials"))
        display.progress(driver.trials, [])
        try:
            try:
                driver.run()
            finally:
                display.close()
        except (SystemExit, KeyboardInterrupt):
            print("interrupted; the same command continues the sweep", file=sys.stderr)
            raise
        finally:
            driver.close()
    finally:
        lock.release(held)
    return _conclude(path, driver.trials)


def _conclude(path: Path, trials: "Trials") -> int:
    """Prints the result of a sweep that has ended, and writes best.yaml. Returns the exit code."""
    from rlrun.sweep import folder as sweeps

    _table(trials)
    if trials.winner is None:
        print("no trial has a score", file=sys.stderr)
        return 1
    winner = trials.trials[trials.winner]
    sweeps.write_best(path, winner.values, _headline(winner, trials))
    print(printable(f"{_headline(winner, trials)}: {path / sweeps.BEST}"))
    return 0


def _headline(winner: "Trial", trials: "Trials") -> str:
    from rlrun.telemetry.view import number

    score = winner.fresh_score(trials.last)
    if score is None:
        return f"best of {len(trials)} trials: trial {winner.number}, score {number(winner.score(trials.last) or 0.0)}"
    return (
        f"best of {len(trials)} trials: trial {winner.number}, "
        f"interquartile mean {number(score)} over {winner.fresh_seeds} fresh seeds"
    )


def _table(trials: "Trials") -> None:
    """Prints the trials, best first, then those without a score."""
    from rlrun.sweep.standings import differing, ranked, standings
    from rlrun.sweep.view import table

    found = standings(trials)
    others = [one for one in found if one.score is None]
    print_columns(table([*ranked(trials, found), *others], trials, differing(trials)))


def _stored(words: Sequence[str]) -> "Stored":
    """Returns the sweep that the user named."""
    from rlrun.cli import settings
    from rlrun.sweep.stored import read

    places, _ = settings.read(words, {})
    return read(settings.run_folder(places, "rlrun sweep status|best SWEEP"))


def _status(words: Sequence[str]) -> int:
    from rlrun import lock
    from rlrun.sweep.forecast import forecast
    from rlrun.telemetry.view import clock

    stored = _stored(words)
    path, trials = stored.path, stored.trials
    _table(trials)
    holder = lock.holder(path)
    parts = [f"{len(trials)} of {stored.cfg.trials} trials", f"{len(trials.open_jobs())} runs open"]
    if trials.winner is not None:
        print(_headline(trials.trials[trials.winner], trials))
        parts.append("done")
    else:
        if best := trials.best():
            print(f"best so far: trial {best[0].number}")
        expected = forecast(trials, stored.cfg, stored.courses, stored.cfg.trials)
        if expected.speed:
            parts.append(f"about {clock(expected.left_s())} left")
        parts.append(f"running: {holder}" if holder else "interrupted: the same command continues it")
    print(printable(f"{path}: {', '.join(parts)}"))
    return 0


def _best(words: Sequence[str]) -> int:
    stored = _stored(words)
    path, trials = stored.path, stored.trials
    best = trials.best()
    if trials.winner is not None:
        best = [trials.trials[trials.winner]]
    if not best:
        raise ConfigError(f"{path}: no trial has a score yet")
    for key, value in best[0].values.items():
        print(printable(f"{key}={check.show(value)}"))
    return 0


VIEWS = {"status": _status, "best": _best}
