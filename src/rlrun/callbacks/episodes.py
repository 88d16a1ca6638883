"""The callback `episodes`, which writes the history of all training episodes."""

import csv
import io
import os
import time
from collections.abc import Iterable
from itertools import islice
from typing import Any

from rlrun import files
from rlrun.core.callback import Callback
from rlrun.errors import ConfigError
from rlrun.settings import register
from rlrun.snapshot.atomic import replace_file
from rlrun.types import Return

COLUMNS = ("episode", "step", "wall_s", "length", "terminated", "success_fraction")


@register("callback", "episodes")
class EpisodesFile(Callback):
    """Writes RUN/episodes.csv, with one line for each training episode.

    Its columns are the number of the episode, the step at which it ended, the seconds of training until then, its
    length, whether it terminated (else it was truncated), the fraction of its steps with success (empty until an
    environment reports it), and its return. For reward vectors, these are the components of the return: return_0,
    return_1, ... The last columns are the entries of `env.log_info` at its last step: info_<name>.

    Lines are written at every log row and snapshot. A resumed run continues the file after the episodes of its
    snapshot.
    """

    def __init__(self, cfg: Any = None):
        super().__init__(cfg)
        self.count = 0  # episodes in the file, and in `lines`
        self.lines: list[str] = []  # of episodes that are not in the file yet

    def on_start(self) -> None:
        self.path = self.run.path / "episodes.csv"
        spec = self.run.loop.env.spec
        returns = ["return"]
        if spec.reward_dim > 1:
            returns = [f"return_{index}" for index in range(spec.reward_dim)]
        columns = [*COLUMNS, *returns, *(f"info_{name}" for name in spec.log_info)]
        kept = [line(columns).encode()]
        if not self.path.exists():  # a new run, or a branch, which counts its own episodes
            self.count = 0
        if self.count:
            header, *lines = islice(files.read_lines(self.path), 1 + self.count)
            if header != kept[0]:
                lines = [with_columns(columns, header, old) for old in lines]
            kept += lines
        self.started = time.monotonic()
        if len(kept) > 1:
            self.started -= self.seconds(kept[-1])
        replace_file(self.path, kept)

    def seconds(self, line: bytes) -> float:
        """Returns the seconds of training at the end of an episode, from its line in the file."""
        try:
            return float(line.split(b",")[COLUMNS.index("wall_s")])
        except (ValueError, IndexError):
            raise ConfigError(
                f"{self.path}: episode {self.count} cannot be read; without this file, a new one is begun"
            ) from None

    def on_episode(self, episode_return: Return, length: int) -> None:
        self.count += 1
        components = [episode_return] if isinstance(episode_return, float) else episode_return
        wall_s = round(time.monotonic() - self.started, 3)
        end = [self.episode.terminated, self.episode.success_fraction]
        loop = self.run.loop
        infos = self.episode.infos or {}
        last = [infos.get(name) for name in loop.env.spec.log_info]
        self.lines.append(line([self.count, loop.steps, wall_s, length, *end, *components, *last]))

    def on_row(self, row: object) -> None:
        self.write()

    def on_snapshot(self, name: str) -> None:
        self.write()

    def on_end(self, summary: object) -> None:
        self.write()

    def write(self) -> None:
        """Appends the new lines to the file."""
        descriptor = files.open_to_append(self.path)
        try:
            os.write(descriptor, "".join(self.lines).encode())
        finally:
            os.close(descriptor)
        self.lines = []

    def get_extra_state(self) -> int:
        return self.count

    def set_extra_state(self, state: int) -> None:
        self.count = int(state)


def line(cells: Iterable[object]) -> str:
    """Returns a line of the file. None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def with_columns(columns: list[str], header: bytes, old: bytes) -> bytes:
    """Returns a line of a file that an earlier version has written, with the columns of this one."""
    names, cells = csv.reader([header.decode(), old.decode()])
    found = dict(zip(names, cells, strict=False))
    return line(found.get(name) for name in columns).encode()
