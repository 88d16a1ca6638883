"""`rlrun eval`: measure a run's agent."""

import json
from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import settings
from rlrun.errors import ConfigError

USAGE = "rlrun eval RUN [episodes=10] [seed=N] [explore=true] [env.kwargs.<key>=...]"
HELP = f"""\
usage: {USAGE}

Runs episodes with the best snapshot (else the latest) in fresh environments. The last line is JSON.
RUN is a run's folder, or one of its snapshots: RUN/snapshots/<name>.

  episodes=10          how many
  seed=N               of the environments; default: the run's
  explore=true         act as in training instead of deterministically
  env.kwargs.<key>=x   change an argument of the environment
  plugins=[package]    packages that the run was started with"""

RULES = {
    "episodes": settings.COUNT,
    "seed": settings.WHOLE,
    "explore": settings.FLAG,
    "plugins": settings.NAMES,
}


def eval(words: Sequence[str]) -> int:
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, RULES, open_keys="env.kwargs")
    path = Path(settings.one_run(places, USAGE))
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder")
    from rlrun import registry
    from rlrun.core.run import evaluate

    registry.load(given.get("plugins", ()))
    kwargs = {key.removeprefix("env.kwargs."): value for key, value in given.items() if key.startswith("env.kwargs.")}
    print(json.dumps(evaluate(path, given.get("episodes", 10), given.get("seed"), given.get("explore", False), kwargs)))
    return 0
