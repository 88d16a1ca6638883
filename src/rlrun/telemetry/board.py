"""Writes the rows of metrics.jsonl as TensorBoard scalars.

This module does without `torch.utils.tensorboard` and tensorflow, which would take seconds to import and start a writer
thread.
"""

import os
import socket
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rlrun import files
from rlrun.media import Histogram
from rlrun.rundir import METRICS
from rlrun.settings import config, register
from rlrun.telemetry.logger import Logger, Start
from rlrun.telemetry.media import Medium, kept
from rlrun.telemetry.metrics import Row, read_rows

AXES = {"step": "step", "updates": "train/updates", "episodes": "train/episodes"}  # metric on the x-axis


@register("logger", "tensorboard")
class TensorBoard(Logger):
    """Writes event files to RUN/tb. If they are deleted during a run, they are written again from metrics.jsonl."""

    local = True

    @config
    class Config:
        x: Literal["step", "updates", "episodes"] = "step"  # runs of earlier versions do not set it

    def open(self, start: Start) -> None:
        self._start = start
        self._board = EventFile(start.run / "tb", AXES[self.cfg.x], start.rows, start.media)

    def row(self, row: Row) -> None:
        if not self._board.is_deleted:
            self._board.write(row)
            return
        self._board.close()
        run = self._start.run
        self._start.say(f"{run / 'tb'} was deleted; it is written again from metrics.jsonl")
        self._board = EventFile(run / "tb", AXES[self.cfg.x], read_rows(run / METRICS), kept(run, row["step"]))

    def media(self, medium: Medium) -> None:
        self._board.show(medium)

    def close(self, summary: dict[str, object]) -> None:
        self._board.close()

    def abandon(self) -> None:
        self._board.close()


class EventFile:
    """Writes each row as one event to a new event file.

    axis: the metric on the x-axis. Rows without it, such as those that earlier versions wrote, are left out. Media are
    shown at the latest row before their step.
    past, media: the rows and media before a resume. Old event files are deleted, and all these are written to the new
    one, so that a resumed run shows every step once.

    The wall time of an event is computed from `wall_s`, and the last past row gets the current time. The pause between
    stop and resume is therefore not visible in TensorBoard's relative time.

    Raises ImportError if tensorboard is not installed, OSError if the file cannot be written.
    """

    def __init__(self, folder: Path, axis: str, past: Sequence[Row], media: Sequence[Medium] = ()):
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        files.make_folder(folder)
        for old in folder.glob("*tfevents*"):
            old.unlink()
        self._event = Event
        self._axis = axis
        self._rows: list[tuple[int, int]] = []  # step and place on the x-axis of each row
        self._origin = time.time()
        if past:
            self._origin -= past[-1]["wall_s"]
        name = f"events.out.tfevents.{int(self._origin)}.{socket.gethostname()}.{os.getpid()}.{time.time_ns()}"
        self._file = (folder / name).open("xb")
        self._records = RecordWriter(self._file)
        self._records.write(Event(wall_time=self._origin, file_version="brain.Event:2").SerializeToString())
        for row in past:
            self._put(row)
        for medium in media:
            self.show(medium)
        self._file.flush()

    def write(self, row: Row) -> None:
        """Writes one row and flushes the file."""
        self._put(row)
        self._file.flush()

    def show(self, medium: Medium) -> None:
        """Writes an image, a video or a histogram."""
        event = self._event(wall_time=time.time(), step=self._place(medium.step))
        if medium.kind is Histogram:
            _fill_histogram(event.summary.value.add(tag=medium.name).histo, *medium.histogram())
        else:
            image = event.summary.value.add(tag=medium.name).image
            image.width, image.height = medium.size()
            image.colorspace = 3
            image.encoded_image_string = medium.content()
        self._records.write(event.SerializeToString())
        self._file.flush()

    @property
    def is_deleted(self) -> bool:
        """Whether the event file was deleted, so that new rows would be lost."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    def close(self) -> None:
        self._file.close()

    def _place(self, step: int) -> int:
        """Returns where the media of a step are on the x-axis."""
        if self._axis == "step":
            return step
        earlier = bisect_left(self._rows, (step, 0))
        if not earlier:
            return 0
        return self._rows[earlier - 1][1]

    def _put(self, row: Row) -> None:
        if self._axis not in row:
            return
        self._rows.append((row["step"], row[self._axis]))
        event = self._event(wall_time=self._origin + row["wall_s"], step=row[self._axis])
        for tag, value in row.items():
            if tag not in ("step", "wall_s"):
                event.summary.value.add(tag=tag, simple_value=value)
        self._records.write(event.SerializeToString())


def _fill_histogram(proto: Any, counts: Sequence[float], edges: Sequence[float]) -> None:
    """Sets the fields of TensorBoard's HistogramProto. Sums are those of values in the middle of their bins."""
    proto.min, proto.max = edges[0], edges[-1]
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        middle = (low + high) / 2
        proto.num += count
        proto.sum += count * middle
        proto.sum_squares += count * middle**2
        proto.bucket_limit.append(high)
        proto.bucket.append(count)
