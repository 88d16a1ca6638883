"""Implements `rlrun sweep`, which searches hyperparameters."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlrun.cli.columns import print_columns
from rlrun.config import check, sources
from rlrun.errors import ConfigError, RunError, printable

if TYPE_CHECKING:
    from rlrun.cluster import Cluster
    from rlrun.cluster.slurm import SlurmConfig
    from rlrun.cluster.submission import Submission
    from rlrun.sweep.journal import Event
    from rlrun.sweep.plan import Plan
    from rlrun.sweep.trials import Trial, Trials

HELP = """\
usage: rlrun sweep algo=<name> env=<name> ['<key>=<range>' ...] [<setting>=value ...]
       rlrun sweep status|best|stop|resume SWEEP

Searches hyperparameters: each trial trains a few runs with settings from a space, trials that fall behind are paused,
and the best are measured again with fresh seeds. Everything is in runs/sweeps/<name>, and the same command continues a
sweep that was interrupted or killed, from where it was.

  ranges     log(1e-5,1e-2)  logit(0.9,0.999)  uniform(0,1)  int(1,5)  pow2(64,1024)  choice(a,b,[256,256])
             without a typed range, the space of the algorithm is searched: rlrun show space=sac
  settings   {settings}
  other words are those of `rlrun train`, for all runs
  submit     local | slurm | ray: where runs are started; rlrun show submit=slurm lists its settings

  rlrun sweep algo=ppo env=CartPole trials=16 workers=2
  rlrun sweep algo=sac env=Pendulum 'algo.gamma=logit(0.9,0.999)' 'algo.tau=log(1e-3,5e-2)'
  rlrun sweep best runs/sweeps/ppo-CartPole"""


DRIVER = "submit.driver"
REFUSED = {"submit.workers": "a sweep has a setting of its own, workers=..."}


def sweep(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    from rlrun.sweep.settings import FILE

    if not words or "--help" in words or "-h" in words:
        meanings = sources.notes(FILE).meanings.items()
        width = max(len(key) for key, _ in meanings)
        lines = [f"{key:{width}}  {meaning}" for key, meaning in meanings]
        print(HELP.format(settings=("\n" + " " * 13).join(lines)))
        return 0
    if words[0] in ACTIONS:
        return ACTIONS[words[0]](words[1:])
    return _run(words)


def _run(words: Sequence[str]) -> int:
    """Runs a sweep, or continues it. Returns the exit code."""
    from rlrun.cluster.submission import chosen
    from rlrun.sweep.plan import plan

    submission, others = chosen(words, REFUSED)
    return _drive(plan(others), words, submission)


def _resume(words: Sequence[str]) -> int:
    """Continues the sweep of a folder. Returns the exit code."""
    from rlrun.cli import settings
    from rlrun.cluster.submission import chosen
    from rlrun.sweep.plan import stored

    submission, others = chosen(words, REFUSED)
    places = [word for word in others if not settings.is_setting(word)]
    path = settings.run_folder(places, "rlrun sweep resume SWEEP [workers=N]")
    planned = stored(path, [word for word in others if word not in places])
    return _drive(planned, ["resume", *words], submission)


def _drive(planned: "Plan", words: Sequence[str], submission: "Submission | None") -> int:
    """Runs a sweep to its end, or submits its driver. Returns the exit code. words: those of the command."""
    from rlrun import lock

    path = planned.path
    if submission is not None and submission.driver is not None:
        return _submit_driver(path, words, submission.driver)
    cluster = _cluster(submission)
    path.mkdir(parents=True, exist_ok=True)
    held = lock.take(path)
    try:
        planned.begin()
        driver = planned.driver(cluster, _say)
        if len(driver.trials):
            print(printable(f"{path}: continues after {len(driver.trials)} of {planned.search.trials} trials"))
        try:
            driver.run()
        except (SystemExit, KeyboardInterrupt):
            print("interrupted; the same command continues the sweep", file=sys.stderr)
            raise
        except RunError:
            print("the sweep is paused; the same command continues it", file=sys.stderr)
            raise
        finally:
            driver.close()
    finally:
        lock.release(held)
    return _conclude(path, driver.trials)


def _cluster(submission: "Submission | None") -> "Cluster":
    """Returns the cluster that starts the runs."""
    from rlrun.cluster.local import local

    if submission is None:
        return local()
    return submission.cluster()


def _submit_driver(path: Path, words: Sequence[str], cfg: "SlurmConfig") -> int:
    """Submits the driver as a job of Slurm. Returns the exit code."""
    from rlrun import lock
    from rlrun.cluster import Command

    words = [word for word in words if word.partition("=")[0] != DRIVER]
    command = Command(path.name, ["sweep", *words, f"{DRIVER}=here"], path.with_name(f"{path.name}.log"))
    cluster = cfg.cluster()
    if lock.holder(path) or cluster.adopt([command]):
        raise ConfigError(f"{path}: its driver is queued or running; rlrun sweep status {path}")
    id = cluster.submit([command])
    print(printable(f"submitted to Slurm: job {id}, the driver of {path}"))
    print(printable(f"follow it with: rlrun sweep status {path}   output: {command.log}"))
    return 0


def _stop(words: Sequence[str]) -> int:
    """Stops the driver of a sweep, wherever it works, and waits for it. Returns the exit code."""
    from rlrun import lock
    from rlrun.cli import settings
    from rlrun.sweep import folder as sweeps
    from rlrun.sweep.driver import STOP

    places, _ = settings.read(words, {})
    path = settings.run_folder(places, "rlrun sweep stop SWEEP")
    sweeps.read(path)
    if not lock.holder(path):
        print(printable(f"{path}: is not running"))
        return 0
    (path / sweeps.TRIALS / STOP).touch()
    while lock.holder(path):
        time.sleep(0.1)
    print(printable(f"{path}: stopped; rlrun sweep resume {path} continues it"))
    return 0


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
    written = sweeps.write_best(path, sweeps.read(path), winner.values, _headline(winner, trials))
    print(printable(f"{_headline(winner, trials)}: preset={' preset='.join(map(str, written))}"))
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


def _stored(words: Sequence[str]) -> tuple[Path, "Trials"]:
    """Returns the folder of a sweep that the user named, and its trials."""
    from rlrun.cli import settings
    from rlrun.sweep import folder as sweeps
    from rlrun.sweep import journal
    from rlrun.sweep.settings import settings as sweep_settings
    from rlrun.sweep.trials import Trials, apply_all

    places, _ = settings.read(words, {})
    path = settings.run_folder(places, "rlrun sweep status|best SWEEP")
    described = sweeps.read(path)
    cfg = sweep_settings(described.sweep)
    trials = Trials(described.envs, cfg.seeds, described.last)
    return path, apply_all(trials, journal.read(path / journal.NAME), described.space)


def _status(words: Sequence[str]) -> int:
    from rlrun import lock

    path, trials = _stored(words)
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
    path, trials = _stored(words)
    best = trials.best()
    if trials.winner is not None:
        best = [trials.trials[trials.winner]]
    if not best:
        raise ConfigError(f"{path}: no trial has a score yet")
    for key, value in best[0].values.items():
        print(printable(f"{key}={check.show(value)}"))
    return 0


ACTIONS = {"status": _status, "best": _best, "stop": _stop, "resume": _resume}
