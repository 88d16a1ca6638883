"""Implements `rlrun eval`, which evaluates a run's agent, and can film it or record its episodes as a data set."""

import json
import math
import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun.cli import settings
from rlrun.errors import ConfigError, printable
from rlrun.settings.types import MOST_EPISODES

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from rlrun.envs.making.make import Recipe
    from rlrun.envs.stepping.slot import EnvSlot
    from rlrun.envs.stepping.vector import VectorEnv
    from rlrun.run.trained import Trained
    from rlrun.types import Batch

USAGE = (
    "rlrun eval RUN [episodes=10] [seed=N] [explore=true] [video=true] [frames=300] [envs=4] [record=DIR] "
    "[env.kwargs.<key>=...]"
)
HELP = f"""\
usage: {USAGE}

Plays episodes in new environments with the best snapshot (or the latest, if there is no best). The last line is JSON.
RUN is a run's folder, or one of its snapshots: RUN/snapshots/<name>.

  episodes=10          number of episodes
  seed=N               seed of the environments; default: the seed of the run
  explore=true         act as in training instead of deterministically
  video=true           film the first episode as MP4 in RUN/videos; video=3: the first three
  frames=300           film no more than the first 300 frames of an episode
  envs=4               show 4 environments side by side in each film, which lasts for an episode of the last one
  record=DIR           write the episodes as a data set, named like demos-v0; minari.MinariDataset("DIR/data") reads it
  env.kwargs.<key>=x   change an argument of the environment
  env.timeout_s=60     time limit for one call of an environment, in seconds
  plugins=[package]    packages and files (./my_env.py) that the run was started with"""

SHOW_AFTER_S = 5.0  # time before the first line about the progress of filming
DATA_SET = re.compile(r"[\w-]+-v\d+")  # names that Minari accepts

RULES = {
    "episodes": settings.ValueRule(
        f"a whole number, 1 to {MOST_EPISODES:,}",
        lambda value: settings.COUNT.is_valid(value) and value <= MOST_EPISODES,
    ),
    "seed": settings.WHOLE,
    "explore": settings.FLAG,
    "video": settings.ValueRule(
        "true, false or how many episodes",
        lambda value: type(value) in (bool, int) and value >= 0,
        choices=("true", "false"),
    ),
    "frames": settings.COUNT,
    "envs": settings.COUNT,
    "record": settings.ValueRule(
        "a new folder, named like demos-v0", lambda value: bool(DATA_SET.fullmatch(Path(str(value)).name))
    ),
    "env.timeout_s": settings.ValueRule("seconds, above 0", lambda value: type(value) in (int, float) and value > 0),
    "plugins": settings.NAMES,
}


def eval(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, RULES, open_keys="env.kwargs")
    path = settings.run_folder(places, USAGE)
    watcher = Watcher(given)
    environment = {key: value for key, value in given.items() if key.startswith("env.")}
    if watcher.num_films:
        from rlrun.envs.recording import choose_renderer

        choose_renderer()
        environment["env.kwargs.render_mode"] = "rgb_array"
    from rlrun.run.trained import evaluate
    from rlrun.settings import registry

    registry.load(given.get("plugins", ()))
    watch = None
    if watcher.num_films or watcher.record:
        watch = watcher
    explore = given.get("explore", False)
    result = evaluate(path, given.get("episodes", 10), given.get("seed"), explore, environment, watch)
    print(*map(printable, [*table(result), *watcher.lines()]), sep="\n")
    print(json.dumps(result | watcher.written))
    return 0


class Watcher:
    """Wraps the environments of one evaluation to film them and to record their episodes."""

    def __init__(self, given: dict[str, Any]):
        self.episodes: int = given.get("episodes", 10)
        self.num_films = min(int(given.get("video", 0)), self.episodes)  # true is 1
        self.frames: float = given.get("frames", math.inf)
        self.envs: int = given.get("envs", 1)  # in each film
        self.record: Path | None = None
        if "record" in given:
            self.record = Path(given["record"])
            if self.record.exists():
                raise ConfigError(f"record={self.record}: exists already")
        self.written: dict[str, Any] = {}
        self.pictures: Tensor | None = None  # those that the agent drew with its last actions, of each environment

    def acted(self, extras: "Batch") -> None:
        """Keeps the pictures that an agent draws, the extra `image`."""
        self.pictures = extras.get("image")

    def picture(self, env: int) -> "np.ndarray | None":
        """Returns the agent's picture of an environment, uint8 [height, width, 3], or None. Those of a film of several
        environments, the first of which has this number, are tiled."""
        from rlrun.envs.recording import tiled
        from rlrun.images import rgb

        if self.pictures is None:
            return None
        pictures = [*self.pictures[env : env + self.envs].cpu().numpy()]
        if len(pictures) == 1:
            return pictures[0]
        return tiled([*map(rgb, pictures)])

    def begin(self, trained: "Trained") -> None:
        """Wraps the environments."""
        from rlrun.envs.stepping.pool import SyncPool

        env = trained.env
        if not isinstance(env.pool, SyncPool) or env.recipe is None:
            key = "video" if self.num_films else "record"
            raise ConfigError(f"{key}: {env.name} steps all its environments at once; a single one cannot be recorded")
        if self.num_films:
            self._film(env, env.pool.slots, env.recipe, trained)
        if self.record is not None:
            self._record(env, env.pool.slots, env.recipe, trained, self.record)

    def lines(self) -> list[str]:
        """Returns a line for each film and for the data set that were written."""
        lines = [f"video    {film}" for film in self.written.get("videos", [])]
        if self.record:
            lines.append(f"data set {self.written['data_set']}")
        return lines

    def _film(self, env: "VectorEnv", slots: list["EnvSlot"], recipe: "Recipe", trained: "Trained") -> None:
        from rlrun.envs.recording import Tiled, VideoRecorder, check_camera
        from rlrun.run.evaluation import episodes_per_env

        if self.envs > len(slots):
            raise ConfigError(f"envs={self.envs}: this evaluation has {len(slots)} environments; set more episodes")
        check_camera(recipe, env.name)
        if self.envs > 1:
            *others, last = slots[: self.envs]
            last.env = Tiled(last.env, [slot.env for slot in others])
            slots = [last]
        snapshot = trained.snapshot
        folder = trained.path / "videos"
        folder.mkdir(exist_ok=True)
        films: list[str] = []
        spec = slots[0].env.spec
        limit = self.frames
        if spec is not None and spec.max_episode_steps is not None:
            limit = min(limit, spec.max_episode_steps + 1)  # the frame of the reset is one more
        shot = FrameCount(limit * self.num_films)
        self.written["videos"] = films

        def start() -> Path:
            films.append(str(folder / f"step_{snapshot.step:09}-{len(films)}.mp4"))
            return Path(films[-1])

        shares = episodes_per_env(self.num_films, len(slots))
        for number, (slot, share) in enumerate(zip(slots, shares, strict=True)):
            picture = partial(self.picture, number)
            slot.env = VideoRecorder(slot.env, int(share), start, shot, self.frames, picture)

    def _record(
        self, env: "VectorEnv", slots: list["EnvSlot"], recipe: "Recipe", trained: "Trained", folder: Path
    ) -> None:
        from rlrun.envs.recording import DataSet, EpisodeRecorder
        from rlrun.run.evaluation import episodes_per_env

        config = trained.config
        about = {
            "algorithm_name": config.algo["name"],
            "description": f"{config.name}, step {trained.snapshot.step}",
            "rlrun_env": env.origin | {"wrappers": config.env.wrappers},  # without the time limit of evaluations
        }
        data = DataSet(folder, recipe, (slots[0].observation_space, slots[0].action_space), about)
        self.written["data_set"] = str(folder)
        for slot, share in zip(slots, episodes_per_env(self.episodes, env.num_envs), strict=True):
            slot.env = EpisodeRecorder(slot.env, int(share), data.add, config.env.executed_action)


class FrameCount:
    """Prints the number of frames to stderr, because rendering may take minutes. Each line comes after twice the time.

    most: the number of frames if no episode ends before its time limit; inf if it is unknown.
    """

    def __init__(self, most: float) -> None:
        self.count, self.most = 0, most
        self.began = time.monotonic()
        self.next = self.began + SHOW_AFTER_S

    def __call__(self) -> None:
        """Counts one frame."""
        from rlrun.telemetry.formatting import clock

        self.count += 1
        now = time.monotonic()
        if now < self.next:
            return
        seconds = now - self.began
        self.next = self.began + 2 * seconds
        line = f"filming: {self.count:,} frames"
        if math.isfinite(self.most):
            left = clock((self.most - self.count) * seconds / self.count)
            line += f" of at most {self.most:,.0f}, at most {left} left; frames=N films less"
        print(line, file=sys.stderr, flush=True)


def table(result: dict[str, Any]) -> list[str]:
    """Returns the lines of a table with statistics of episode returns, of each component of a reward vector, of
    lengths, and of success if the environment reports it."""
    import numpy as np

    count = result["episodes"]
    lines = [f"{result['run']}, {result['snapshot']} (step {result['step']:,}), {count} episode{'s' * (count != 1)}"]
    lines.append(f"{'':9}{'mean':>12}{'std':>12}{'median':>12}{'min':>12}{'max':>12}")
    components = [key for key in result if key.startswith("returns_")]
    for name in ("returns", *components, "lengths"):
        x = np.array(result[name], float)
        figures = (x.mean(), x.std(), np.median(x), x.min(), x.max())
        lines.append(f"{name:9}" + "".join(map("{:>12,.2f}".format, figures)))
    if "success_rate" in result:
        lines.append(f"{'success':9}{result['success_rate']:>12.2f}")
    return lines
