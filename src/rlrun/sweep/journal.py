"""The journal of a sweep: one line for every decision and every result, from which a restarted driver goes on."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlrun import files
from rlrun.errors import NO_SPACE, ConfigError, RunError

Event = dict[str, Any]  # "event" says what happened; `Trials.apply` shows the other keys

NAME = "journal.jsonl"


class Journal:
    """Appends events to a file. Each is on disk before `append` returns."""

    def __init__(self, path: Path):
        """Opens the journal. Removes an incomplete last line, whose event counts as not having happened.

        Raises ConfigError at a damaged line.
        """
        self.path = path
        size = 0
        if path.exists():
            size = sum(len(line) for line, _ in _lines(path))
        self._file = files.open_to_append(path)
        os.ftruncate(self._file, size)

    def append(self, event: Event) -> None:
        """Writes an event. Raises RunError if it cannot be written or would be too long to be read.

        After an error the file is as before, and the event counts as not having happened.
        """
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        if len(line) > files.ROW_BYTES:
            raise RunError(f"{self.path}: an event of {len(line):,} bytes; the limit is {files.ROW_BYTES:,}")
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size)
            reason = error.strerror
            if error.errno == errno.ENOSPC:
                reason = NO_SPACE
            raise RunError(f"{self.path}: {reason}") from error
        if written < len(line):
            os.ftruncate(self._file, size)
            raise RunError(f"{self.path}: {NO_SPACE}")

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> Iterator[Event]:
    """Yields the events of a journal in order, or nothing if there is none. Raises ConfigError at a damaged line."""
    if path.exists():
        for _, event in _lines(path):
            yield event


def _lines(path: Path) -> Iterator[tuple[bytes, Event]]:
    """Yields (line, event) for every complete line. The last line may have no end yet, and is then left out.

    Raises ConfigError if a complete line is not an event.
    """
    for number, line in enumerate(files.read_lines(path), start=1):
        if not line.endswith(b"\n"):
            return  # the rest of the line may be in the file by now
        event = _event(line)
        if event is None:
            raise ConfigError(f"{path}: line {number} cannot be read")
        yield line, event


def _event(line: bytes) -> Event | None:
    """Returns the event of a line, or None if the line holds no event."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    return event
