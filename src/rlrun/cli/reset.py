"""Implements `rlrun reset`, which starts a new run with the weights of another."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import resume, settings
from rlrun.cli.train import say_how_to_resume
from rlrun.config import check, loggers
from rlrun.errors import ConfigError, printable

USAGE = "rlrun reset RUN into=NEW_DIR [seed=N]"
HELP = f"""\
usage: {USAGE}

Starts a new run with the config and the weights of a run, or of one of its snapshots, RUN/snapshots/<name>. Steps,
schedules, exploration, optimisers, replay and the best return start as in any new run. Statistics of normalisation are
kept. Replay is filled first by algo.loop.refill_policy, which is the agent unless RUN was trained with another.

  into=NEW_DIR         folder of the new run
  seed=N               seed of the new run; without it, that of RUN
  total_steps=N        number of steps of the new run; without it, that of RUN
  device=cuda          change the device; trainer.eval_every, logger, ... may change as for rlrun resume
  plugins=[package]    packages and files (./my_env.py) that RUN was started with

  rlrun reset runs/sac-HalfCheetah/<run> into=runs/second seed=1"""

RULES = resume.RULES | {"seed": settings.WHOLE}


def reset(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, changes = settings.read(words, RULES, open_keys="*")
    path = Path(settings.one_run(places, USAGE))
    into = changes.pop("into", None)
    if into is None:
        raise ConfigError(f"into: missing; it names the folder of the new run; usage: {USAGE}")
    plugins = changes.pop("plugins", ())
    changes = {check.full_key(key, value): value for key, value in changes.items()}
    from rlrun.run.job import reset_run

    if hint := loggers.hint(words):
        print(printable(hint), file=sys.stderr)
    done = reset_run(path, changes, into, plugins)
    say_how_to_resume(done.exit_code, done.path, plugins)
    return done.exit_code
