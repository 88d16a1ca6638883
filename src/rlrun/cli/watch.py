"""Implements `rlrun watch`, which shows a run's agent in a window."""

from collections.abc import Sequence

from rlrun.cli import evaluate, settings
from rlrun.errors import PROGRAM, ConfigError, printable, quoted
from rlrun.operating_system import has_display

USAGE = "rlrun watch RUN [episodes=10] [seed=N] [explore=true] [env.kwargs.<key>=...]"
HELP = f"""\
usage: {USAGE}

Opens a window and plays episodes with the best snapshot (or the latest, if there is no best). Ctrl-C ends it earlier.
Without a display, `rlrun eval RUN video=true` films the episodes instead. If DISPLAY names a display that does not
answer, most environments play without a window and without an error.
RUN is a run's folder, or one of its snapshots: RUN/snapshots/<name>.

  episodes=10          number of episodes
  seed=N               seed of the environment; default: the seed of the run
  explore=true         act as in training instead of deterministically
  env.kwargs.<key>=x   change an argument of the environment
  env.timeout_s=60     time limit for one call of an environment, in seconds
  plugins=[package]    packages that the run was started with"""

RULES = {key: evaluate.RULES[key] for key in ("episodes", "seed", "explore", "env.timeout_s", "plugins")}


def watch(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, RULES, open_keys="env.kwargs")
    path = settings.run_folder(places, USAGE)
    if not has_display():
        raise ConfigError(
            f"there is no display here; to film the agent instead: {PROGRAM} eval {quoted(path)} video=true"
        )
    from rlrun.envs.stepping.pool import SyncPool
    from rlrun.run.evaluation import play
    from rlrun.run.trained import restored
    from rlrun.settings import registry
    from rlrun.telemetry.formatting import number

    registry.load(given.get("plugins", ()))
    environment = {key: value for key, value in given.items() if key.startswith("env.")}
    environment["env.kwargs.render_mode"] = "human"
    with restored(path, 1, given.get("seed"), environment, in_this_process=True) as trained:
        if not isinstance(trained.env.pool, SyncPool):
            raise ConfigError(f"{trained.env.name} steps all its environments at once; a single one cannot be shown")
        for i in range(given.get("episodes", 10)):
            (result,) = play(trained.agent, trained.addons, trained.env, 1, given.get("explore", False))
            line = f"episode {i + 1}: return {number(result.episode_return)}, {result.length:,} steps"
            print(printable(line), flush=True)
    return 0
