"""`rlrun resume`: go on with a run."""

from collections.abc import Sequence

from rlrun.cli import settings
from rlrun.cli.train import held

USAGE = "rlrun resume RUN [total_steps=N]"
HELP = f"""\
usage: {USAGE}

Takes the run's latest snapshot and goes on to the recorded number of steps, or to the one given.

  total_steps=N        train to N steps in all; schedules keep their first horizon
  plugins=[package]    packages that the run was started with

  rlrun resume runs/sac-HalfCheetah/<run> total_steps=2e6"""

RULES = {"total_steps": settings.COUNT, "trainer.total_steps": settings.COUNT, "plugins": settings.NAMES}


def resume(words: Sequence[str]) -> int:
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, RULES)
    path = settings.one_run(places, USAGE)
    from rlrun.rundir import RunDir

    folder = RunDir.open(path)
    with held(folder, is_new=False):
        from rlrun import registry
        from rlrun.core.run import resume

        registry.load(given.get("plugins", ()))
        return resume(folder, given.get("total_steps", given.get("trainer.total_steps"))).exit_code
