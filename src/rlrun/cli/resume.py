"""`rlrun resume`: go on with a run."""

from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import settings
from rlrun.cli.train import say_how_to_resume
from rlrun.config import check
from rlrun.errors import ConfigError

USAGE = "rlrun resume RUN [total_steps=N] [into=NEW_DIR]"
HELP = f"""\
usage: {USAGE}

Takes the run's latest snapshot and goes on to the recorded number of steps, or to the one given.

  total_steps=N        train to N steps in all; schedules keep their first horizon
  device=cuda          go on elsewhere; also trainer.eval_every=N, trainer.snapshot_every=N, logger.console=false, ...
  into=NEW_DIR         go on in a run of its own; RUN may then be an older RUN/snapshots/<name>
  plugins=[package]    packages and files (./my_env.py) that the run was started with

  rlrun resume runs/sac-HalfCheetah/<run> total_steps=2e6"""

RULES = {"total_steps": settings.COUNT, "device": settings.TEXT, "into": settings.TEXT, "plugins": settings.NAMES}


def resume(words: Sequence[str]) -> int:
    """Run the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, changes = settings.read(words, RULES, open_keys="*")
    path = Path(settings.one_run(places, USAGE))
    into = changes.pop("into", None)
    plugins = changes.pop("plugins", ())
    changes = {check.SHORT.get(key, key): value for key, value in changes.items()}
    if path.parent.name == "snapshots" and into is None:
        raise ConfigError(f"{path}: a run goes on from its latest snapshot; from this one, in a new run: into=NEW_DIR")
    from rlrun.run.job import resume_run

    done = resume_run(path, changes, plugins, into)
    say_how_to_resume(done.exit_code, done.path, plugins)
    return done.exit_code
