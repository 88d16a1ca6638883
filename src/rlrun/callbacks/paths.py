"""The callback `paths`, which keeps all training episodes as data sets."""

import re
import shutil
from typing import TypedDict

import torch
from torch import Tensor

from rlrun import files
from rlrun.buffers.demo_lines import episode
from rlrun.buffers.demos import Demo
from rlrun.core.callback import Callback
from rlrun.datasets.demonstrations import require_minari, write
from rlrun.nested import index
from rlrun.settings import register
from rlrun.snapshot.store import step_name
from rlrun.tensors import on, stack
from rlrun.types import Batch, Step

KEYS = ("obs", "next_obs", "executed", "reward", "terminated", "truncated", "weight", "first")
DATA_SET = re.compile(r"step_(\d+)-v0")
UNKNOWN = -1  # stands for the first row of an episode that began before the callback did


class RunningEpisodes(TypedDict):
    """The state of the callback."""

    rows: Batch | None  # [time, num_envs, ...]
    begun: Tensor  # [num_envs]


@register("callback", "paths")
class Paths(Callback):
    """Writes the training episodes as data sets in Minari's format, which `algo.loop.data` also takes.

    With every snapshot, RUN/paths/step_000050000-v0 gets the episodes that ended up to this step and after the
    snapshot before; until then they are in memory. Observations and rewards are those after the wrappers, without
    normalisation. An episode that a failed environment or the end of the run has cut is left out.
    """

    def __init__(self, cfg: object = None):
        super().__init__(cfg)
        self.rows: list[Step] = []  # the latest steps, from the first one of the longest running episode on
        self.begun = torch.zeros(0, dtype=torch.long)  # [num_envs], the row at which each running episode begins
        self.episodes: list[Demo] = []  # that have ended since the last data set

    def on_start(self) -> None:
        self.folder = self.run.path / "paths"
        require_minari(self.folder)
        if not len(self.begun):
            self.begun = torch.full((self.run.loop.env.spec.num_envs,), UNKNOWN)
        files.check_folder(self.folder)
        for place in self.folder.glob("*"):  # written after the snapshot, by a process that was then killed
            found = DATA_SET.fullmatch(place.name)
            if found and int(found[1]) > self.run.loop.steps:
                shutil.rmtree(place)

    def on_step(self, step: Step) -> None:
        row = on(torch.device("cpu"), {key: step[key] for key in KEYS})
        self.begun = self.begun.masked_fill(row["first"], len(self.rows))
        self.rows.append(row)
        ended = row["terminated"] | row["truncated"]
        if ended.any():
            for env in ended.nonzero().flatten().tolist():
                self.end(env)
            self.drop_rows()

    def end(self, env: int) -> None:
        """Keeps the running episode of an environment, unless a step of it is missing or masked (weight 0)."""
        begin = int(self.begun[env])
        if begin != UNKNOWN:
            rows = stack([index(row, env) for row in self.rows[begin:]])
            if (rows["weight"] > 0).all():
                self.episodes.append(episode(rows | {"action": rows["executed"]}))
        self.begun[env] = UNKNOWN

    def drop_rows(self) -> None:
        """Drops the rows that no running episode needs."""
        running = self.begun[self.begun != UNKNOWN]
        count = len(self.rows)
        if len(running):
            count = int(running.min())
        del self.rows[:count]
        self.begun = torch.where(self.begun == UNKNOWN, UNKNOWN, self.begun - count)

    def on_snapshot(self, name: str) -> None:
        self.write()

    def on_end(self, summary: object) -> None:
        self.write()

    def write(self) -> None:
        """Writes the episodes that have ended since the last data set as a new one, if there are any."""
        if self.episodes:
            files.make_folder(self.folder)
            write(self.folder / f"{step_name(self.run.loop.steps)}-v0", self.episodes, self.run.loop.env)
            self.episodes = []

    def get_extra_state(self) -> RunningEpisodes:
        rows = None
        if self.rows:
            rows = stack(self.rows)
        return {"rows": rows, "begun": self.begun}

    def set_extra_state(self, state: RunningEpisodes) -> None:
        """Restores the rows. Raises an exception of any type if they do not fit, as snapshots may be untrusted."""
        rows = state["rows"]
        self.begun = state["begun"]
        self.rows = []
        if rows is not None:
            self.rows = [index(rows, time) for time in range(len(rows["first"]))]
        if self.rows and {*self.rows[0]} != {*KEYS}:
            raise ValueError("the rows of running episodes have other entries")
