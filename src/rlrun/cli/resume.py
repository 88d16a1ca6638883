"""Implements `rlrun resume`, which continues a run."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import settings
from rlrun.cli.train import say_how_to_resume
from rlrun.config import check, loggers, resumable
from rlrun.errors import ConfigError, printable

USAGE = "rlrun resume RUN [total_steps=N] [into=NEW_DIR]"
HELP = f"""\
usage: {USAGE}

Continues a run from its latest snapshot to the recorded number of steps, or to total_steps.

  total_steps=N        train to N steps in total; schedules still end at the original number of steps
  'algo.schedule={{learning_rate: {{linear: {{end: 0}}}}}}'  let the learning rate fall to 0 at the new end
  device=cuda          change the device; other settings that may change: trainer.eval_every, logger, ...
  algo.learning_rate=1e-4  a new value of a number that may be scheduled, from the latest snapshot on
  logger=[console,csv] change where metrics go; loggers that send data elsewhere must be typed again
  'callbacks=[{{name: my_callback}}]'  add callbacks that do not change the run
  cluster=local        run the shards of the run in processes of this machine; cluster=none: in one process
  into=NEW_DIR         continue in a new run; RUN may then be any snapshot, RUN/snapshots/<name>
  plugins=[package]    packages and files (./my_env.py) that the run was started with

  rlrun resume runs/sac-HalfCheetah/<run> total_steps=2e6"""

RULES = {
    "total_steps": settings.COUNT, "device": settings.TEXT, "into": settings.PATH, "plugins": settings.NAMES,
    loggers.SECTION: settings.LOGGERS, "cluster": settings.TEXT,
    resumable.CALLBACKS: settings.CALLBACKS,
}  # fmt: skip


def resume(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, changes = settings.read(words, RULES, open_keys="*")
    path = Path(settings.one_run(places, USAGE))
    into = changes.pop("into", None)
    plugins = changes.pop("plugins", ())
    changes = {check.full_key(key, value): value for key, value in changes.items()}
    if path.parent.name == "snapshots" and into is None:
        raise ConfigError(f"{path}: a run resumes from its latest snapshot; to start from this one, add into=NEW_DIR")
    from rlrun.run.job import resume_run

    if hint := loggers.hint(words):
        print(printable(hint), file=sys.stderr)
    done = resume_run(path, changes, plugins, into)
    say_how_to_resume(done.exit_code, done.path, plugins)
    return done.exit_code
