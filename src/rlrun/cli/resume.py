"""`rlrun resume`: go on with a run."""

from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import settings
from rlrun.cli.train import held
from rlrun.errors import ConfigError

USAGE = "rlrun resume RUN [total_steps=N]"
HELP = f"""\
usage: {USAGE}

Takes the run's latest snapshot and goes on to the recorded number of steps, or to the one given.

  total_steps=N        train to N steps in all; schedules keep their first horizon
  into=NEW_DIR         go on in a run of its own; RUN may then be an older RUN/snapshots/<name>
  plugins=[package]    packages that the run was started with

  rlrun resume runs/sac-HalfCheetah/<run> total_steps=2e6"""

RULES = {
    "total_steps": settings.COUNT,
    "trainer.total_steps": settings.COUNT,
    "into": settings.TEXT,
    "plugins": settings.NAMES,
}


def resume(words: Sequence[str]) -> int:
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, RULES)
    path = Path(settings.one_run(places, USAGE))
    total_steps = given.get("total_steps", given.get("trainer.total_steps"))
    into = given.get("into")
    if path.parent.name == "snapshots" and into is None:
        raise ConfigError(f"{path}: a run goes on from its latest snapshot; from this one, in a new run: into=NEW_DIR")
    from rlrun.rundir import RunDir

    folder = RunDir.open(path) if into is None else RunDir.create({"run_dir": into})
    with held(folder, is_new=into is not None):
        from rlrun import registry
        from rlrun.core import run

        registry.load(given.get("plugins", ()))
        result = run.resume(folder, total_steps) if into is None else run.branch(path, folder, total_steps)
        return result.exit_code
