"""Implements `rlrun sweep`, which searches hyperparameters."""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun import dotted, files
from rlrun.cli import main
from rlrun.cli.columns import print_columns
from rlrun.config import check, sources
from rlrun.errors import PROGRAM, ConfigError, RunError, nearest, printable, quoted

if TYPE_CHECKING:
    from rlrun.cluster import Cluster
    from rlrun.cluster.slurm import SlurmConfig
    from rlrun.cluster.submission import Submission
    from rlrun.sweep.plan import Plan
    from rlrun.sweep.stored import Stored
    from rlrun.sweep.trials import Trial, Trials

HELP = """\
usage: rlrun sweep algo=<name> env=<name> ['<key>=<range>' ...] [<setting>=value ...]
       rlrun sweep status|best|stop|resume|replay SWEEP

Searches hyperparameters: each trial trains a few runs with settings from a space, trials that fall behind are paused,
and the best are measured again with fresh seeds. Everything is in runs/sweeps/<name>, and the same command continues a
sweep that was interrupted or killed, from where it was.

  ranges     log(1e-5,1e-2)  logit(0.9,0.999)  uniform(0,1)  int(1,5)  pow2(64,1024)  choice(a,b,[256,256])
             without a typed range, the space of the algorithm is searched: rlrun show space=sac
  settings and their defaults
             {settings}
  other words are those of `rlrun train`, for all runs; env=A,B measures each trial in both environments
  --config-dir DIR: search this folder for YAML files too
  submit     local | slurm | ray: where runs are started; rlrun show submit=slurm lists its settings

  rlrun sweep algo=ppo env=CartPole trials=16 workers=2
  rlrun sweep algo=sac env=Pendulum 'algo.gamma=logit(0.9,0.999)' 'algo.tau=log(1e-3,5e-2)'
  rlrun sweep best runs/sweeps/ppo-CartPole
  rlrun report runs/sweeps/ppo-CartPole
  rlrun train algo=ppo env=CartPole preset=runs/sweeps/ppo-CartPole/best.yaml"""


OPTIONS = (sources.CONFIG_DIR,)
DRIVER = "submit.driver"
REFUSED = {"submit.workers": "a sweep has a setting of its own, workers=..."}


def sweep(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    from rlrun.sweep.settings import meanings

    if not words or "--help" in words or "-h" in words:
        rows = [(key, _default(default), meaning) for key, (default, meaning) in meanings().items()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{key:{widths[0]}}  {default:{widths[1]}}  {meaning}" for key, default, meaning in rows]
        print(HELP.format(settings=("\n" + " " * 13).join(lines)))
        return 0
    config_dirs, words = sources.config_dirs(words)
    words = [*words, *config_dirs]
    if words[0] in ACTIONS:
        return ACTIONS[words[0]](words[1:])
    if "=" not in words[0] and not words[0].startswith("-"):
        raise ConfigError(
            f"sweep {words[0]}: unknown action{nearest(words[0], ACTIONS)} (there are: {', '.join(ACTIONS)}; "
            "a sweep begins with algo=... env=...)"
        )
    return _run(words)


def _default(value: Any) -> str:
    """Returns the default of a setting as the help shows it."""
    if value == check.MISSING:
        return "required"
    return dotted.show(value)


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
    planned.check_ends()
    return _drive(planned, ["resume", *words], submission)


def _drive(planned: "Plan", words: Sequence[str], submission: "Submission | None") -> int:
    """Runs a sweep to its end, or submits its driver. Returns the exit code. words: after `rlrun sweep`."""
    from rlrun import lock
    from rlrun.sweep.display import open_display
    from rlrun.sweep.view import SweepView

    path = planned.path
    files.check_folder(path)
    if submission is not None and submission.driver is not None:
        return _submit_driver(path, words, submission.driver)
    cluster = _cluster(submission)
    path.mkdir(parents=True, exist_ok=True)
    held = lock.take(path)
    try:
        planned.begin()
        rung_steps = {env: template.rung_steps for env, template in planned.templates.items()}
        display = open_display(SweepView(path, planned.cfg, rung_steps, planned.search.trials))
        driver = planned.driver(cluster, display)
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
    return submission.cluster(main)


def _submit_driver(path: Path, words: Sequence[str], cfg: "SlurmConfig") -> int:
    """Submits the driver as a job of Slurm. Returns the exit code."""
    from rlrun import lock
    from rlrun.cluster import Command

    words = [word for word in words if word.partition("=")[0] != DRIVER]
    command = Command(path.name, ["sweep", *words, f"{DRIVER}=here"], path.with_name(f"{path.name}.log"))
    cluster = cfg.cluster(main)
    if lock.holder(path) or cluster.adopt([command]):
        raise ConfigError(f"{path}: its driver is queued or running; {PROGRAM} sweep status {quoted(path)}")
    id = cluster.submit([command])
    print(printable(f"submitted to Slurm: job {id}, the driver of {path}"))
    print(printable(f"follow it with: {PROGRAM} sweep status {quoted(path)}   output: {command.log}"))
    return 0


def _replay(words: Sequence[str]) -> int:
    """Trains the winner of a sweep again in one run, without pauses. Returns the exit code."""
    from rlrun.cli import settings
    from rlrun.cli.train import train
    from rlrun.snapshot.store import Store
    from rlrun.sweep.plan import stored

    places = [word for word in words if not settings.is_setting(word)]
    path = settings.run_folder(places, "rlrun sweep replay SWEEP")
    planned = stored(path, [word for word in words if word not in places])
    trials = planned.trials()
    if trials.winner is None:
        raise ConfigError(f"{path}: has no winner yet")
    winner = trials.trials[trials.winner]
    last_rung = max(job.rung for job in winner.results)
    job = min(job for job in winner.results if job.rung == last_rung)  # that of the first environment and seed
    runs = planned.runs()
    target = path / "replay"
    if target.exists():
        raise ConfigError(f"{target}: is there already; remove it to train the winner again")
    runs.check(job, winner)
    code = train([*runs.words_to_end(job, winner, target), *runs.pause_words(job)])
    if code:
        return code
    expected = Store(runs.path(job)).load().digest
    digest = Store(target).load().digest
    print(printable(f"{target}: digest {digest}"))
    if digest != expected:
        print(printable(f"error: {runs.path(job)} has another digest: {expected}"), file=sys.stderr)
        return 1
    print(printable(f"equal to {runs.path(job)}"))
    return 0


def _stop(words: Sequence[str]) -> int:
    """Stops the driver of a sweep, on any machine, and waits until it has ended. Returns the exit code."""
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
    os.close(files.open_to_append(path / sweeps.TRIALS / STOP))
    while lock.holder(path):
        time.sleep(0.1)
    print(printable(f"{path}: stopped; {PROGRAM} sweep resume {quoted(path)} continues it"))
    return 0


def _conclude(path: Path, trials: "Trials") -> int:
    """Prints the result of a sweep that has ended, and writes best.yaml. Returns the exit code."""
    from rlrun.sweep import folder as sweeps
    from rlrun.sweep.best import write_best
    from rlrun.sweep.finals import without_winner

    _table(trials)
    if trials.winner is None:
        print(printable(f"error: {path}: {without_winner(trials)}"), file=sys.stderr)
        if trials.best():
            print(printable(f"best settings of the search: {PROGRAM} sweep best {quoted(path)}"), file=sys.stderr)
        return 1
    winner = trials.trials[trials.winner]
    written = write_best(path, sweeps.read(path), winner, _headline(winner, trials))
    print(printable(f"{_headline(winner, trials)}: {' '.join(shlex.quote(f'preset={file}') for file in written)}"))
    return 0


def _headline(winner: "Trial", trials: "Trials") -> str:
    """Returns the result of a sweep in one line."""
    from rlrun.telemetry.formatting import number

    score = winner.fresh_score()
    if score is None:
        rung = max(job.rung for job in winner.results)
        shown = number(winner.score(rung) or 0.0)
        found = f"score {shown} at rung {rung + 1} of {trials.last_rung + 1}"
        return f"best of {len(trials)} trials: trial {winner.number}, {found}"
    return (
        f"best of {len(trials)} trials: trial {winner.number}, "
        f"interquartile mean {number(score)} over {winner.fresh_seeds} fresh seeds"
    )


def _table(trials: "Trials") -> None:
    """Prints the trials, best first, then those without a score."""
    from rlrun.sweep.standings import MOST_SHOWN, differing_keys, shown
    from rlrun.sweep.view import table

    print_columns(table(shown(trials), trials, differing_keys(trials)))
    if len(trials) > MOST_SHOWN:
        print(f"and {len(trials) - MOST_SHOWN:,} other trials")


def _stored(words: Sequence[str]) -> "Stored":
    """Returns the sweep that the user named."""
    from rlrun.cli import settings
    from rlrun.sweep.stored import read

    places, _ = settings.read(words, {})
    return read(settings.run_folder(places, "rlrun sweep status|best SWEEP"))


def _status(words: Sequence[str]) -> int:
    from rlrun import lock
    from rlrun.sweep.forecast import forecast
    from rlrun.telemetry.formatting import clock

    stored = _stored(words)
    path, trials = stored.path, stored.trials
    _table(trials)
    holder = lock.holder(path)
    parts = [f"{len(trials)} of {stored.planned} trials", f"{len(trials.open_jobs())} runs open"]
    if trials.winner is not None:
        print(_headline(trials.trials[trials.winner], trials))
        parts.append("done")
    elif stored.state in ("running", "interrupted"):
        if best := trials.best():
            print(f"best so far: trial {best[0].number}")
        expected = forecast(trials, stored.cfg, stored.rung_steps, stored.planned)
        if expected.speed:
            parts.append(f"about {clock(expected.left_s())} left")
        parts.append(f"running: {holder}" if holder else "interrupted: the same command continues it")
    else:
        parts.append(stored.state)
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
        print(printable(f"{key}={dotted.show(value)}"))
    return 0


ACTIONS = {"status": _status, "best": _best, "stop": _stop, "resume": _resume, "replay": _replay}
