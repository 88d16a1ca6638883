"""Implements `rlrun sweep`, which searches hyperparameters."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlrun.cli.columns import print_columns
from rlrun.config import check, sources
from rlrun.errors import ConfigError, printable

if TYPE_CHECKING:
    from rlrun.sweep.journal import Event
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
    from rlrun.sweep.plan import plan

    planned = plan(words)
    path = planned.path
    path.mkdir(parents=True, exist_ok=True)
    held = lock.take(path)
    try:
        planned.begin()
        driver = planned.driver(local(), _say)
        if len(driver.trials):
            print(printable(f"{path}: continues after {len(driver.trials)} of {planned.search.trials} trials"))
        try:
            driver.run()
        except (SystemExit, KeyboardInterrupt):
            print("interrupted; the same command continues the sweep", file=sys.stderr)
            raise
        finally:
            driver.close()
    finally:
        lock.release(held)
    return _conclude(path, driver.trials)


def _say(event: "Event", trials: "Trials") -> None:
    """Prints one line for an event."""
    from rlrun.telemetry.view import number

    match event["event"]:
        case "asked":
            first = len(trials) - len(event["values"])
            for place, values in enumerate(event["values"]):
                text = " ".join(f"{key}={check.show(value)}" for key, value in values.items())
                print(printable(f"trial {first + place}: {text}"))
        case "promoted":
            print(f"train on: {', '.join(f'trial {one}' for one in event['trials'])}")
        case "another_seed":
            print(f"another seed: {', '.join(f'trial {one}' for one in event['trials'])}")
        case "ruled_out":
            print(f"significantly worse than the best: {', '.join(f'trial {one}' for one in event['trials'])}")
        case "measured_again":
            shown = ", ".join(f"trial {one}" for one in event["trials"])
            print(f"measured again with {event['seeds']} fresh seeds: {shown}")
        case "scored":
            print(printable(f"{_run_of(event)}: {number(event['score'])} at step {event['step']:,}"))
        case "failed":
            print(printable(f"{_run_of(event)}: failed: {event['why']}"))
    sys.stdout.flush()


def _run_of(event: "Event") -> str:
    return f"trial {event['trial']}, {event['env']}, seed {event['seed']}"


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
    from rlrun.telemetry.view import number

    best = trials.best()
    rows = [("trial", "rung", "score", "fresh", "values")]
    for trial in [*best, *(one for one in trials.trials if one not in best)]:
        scores = [trial.score(rung) for rung in range(trial.rung + 1)]
        known = [score for score in scores if score is not None]
        fresh = trial.fresh_score(trials.last)
        shown = number(known[-1]) if known and not trial.failed else ""
        values = " ".join(f"{key}={check.show(value)}" for key, value in trial.values.items())
        if trial.failed:
            shown = "failed"
        rows.append((str(trial.number), str(trial.rung), shown, "" if fresh is None else number(fresh), values))
    print_columns(rows)


def _stored(words: Sequence[str]) -> "Stored":
    """Returns the sweep that the user named."""
    from rlrun.cli import settings
    from rlrun.sweep.stored import read

    places, _ = settings.read(words, {})
    return read(settings.run_folder(places, "rlrun sweep status|best SWEEP"))


def _status(words: Sequence[str]) -> int:
    from rlrun import lock

    stored = _stored(words)
    path, trials = stored.path, stored.trials
    _table(trials)
    holder = lock.holder(path)
    state = "interrupted: the same command continues it"
    if holder:
        state = f"running: {holder}"
    elif trials.winner is not None:
        state = "done"
    print(printable(f"{path}: {len(trials)} trials, {len(trials.open_jobs())} runs open, {state}"))
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
