"""Base class of callbacks that write a line for each event to a CSV file of the run."""

import csv
import io
import os
from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

from rlrun import files
from rlrun.core.callback import Callback
from rlrun.snapshot.atomic import replace_file


class HistoryFile(Callback):
    """Writes lines to a file at every log row and snapshot. A resumed run continues it after those of its snapshot."""

    file: ClassVar[str]  # its name in the folder of the run

    def __init__(self, cfg: object = None):
        super().__init__(cfg)
        self.count = 0  # lines of events in the file, and in `lines`
        self.lines: list[str] = []  # that are not in the file yet

    def columns(self) -> list[str]:
        """Returns the names of the columns."""
        raise NotImplementedError

    def on_start(self) -> None:
        self.path = self.run.path / self.file
        columns = self.columns()
        kept = [line(columns).encode()]
        if not self.path.exists():  # a new run, or a branch, which counts its own events
            self.count = 0
        if self.count:
            header, *lines = islice(files.read_lines(self.path), 1 + self.count)
            if header != kept[0]:
                lines = [with_columns(columns, header, old) for old in lines]
            kept += lines
        self.continue_after(kept[1:])
        replace_file(self.path, kept)

    def continue_after(self, lines: list[bytes]) -> None:
        """Called at the start with the lines of earlier events."""

    def add(self, cells: Iterable[object]) -> None:
        """Adds the line of an event. None is an empty cell."""
        self.count += 1
        self.lines.append(line(cells))

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
