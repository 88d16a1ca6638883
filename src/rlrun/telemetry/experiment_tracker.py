"""The base class of loggers that send rows to an experiment tracker. A resume continues the same remote run."""

import json
import re
from pathlib import Path
from typing import ClassVar

from rlrun import files
from rlrun.config.stored import parse_json
from rlrun.errors import ConfigError
from rlrun.snapshot.atomic import replace_text
from rlrun.telemetry.logger import Logger, Start
from rlrun.telemetry.media import Medium
from rlrun.telemetry.metrics import Row

ID = re.compile(r"[\w-]{1,64}", re.ASCII)


class RemoteLogger(Logger):
    """Base class of loggers with a remote run.

    RUN/<name>.json holds the id of the remote run and the step of the last row sent. After a resume, rows up to this
    step are not sent again, although the run logs them again; rows that the remote run lacks are sent first.
    """

    registered: ClassVar[str]

    def connect(self, start: Start, id: str | None) -> str:
        """Creates a remote run, or continues the one with this id. Returns the id."""
        raise NotImplementedError

    def send(self, row: Row) -> None:
        """Sends one row."""
        raise NotImplementedError

    def send_medium(self, medium: Medium) -> None:
        """Sends an image, a video or a histogram."""

    def open(self, start: Start) -> None:
        self._path = start.run / f"{self.registered}.json"
        known, self._sent = _read(self._path)
        self._sent_before = self._sent  # step of the last row that an earlier process sent
        self._id = self.connect(start, known)
        for medium in start.media:
            self.media(medium)
        for row in start.rows:
            self._send_if_new(row)
        self._write()

    def row(self, row: Row) -> None:
        self._send_if_new(row)
        self._write()

    def media(self, medium: Medium) -> None:
        if medium.step > self._sent_before:
            self.send_medium(medium)

    def _send_if_new(self, row: Row) -> None:
        if row["step"] > self._sent:
            self.send(row)
            self._sent = row["step"]

    def _write(self) -> None:
        replace_text(self._path, json.dumps({"id": self._id, "step": self._sent}) + "\n")


def _read(path: Path) -> tuple[str | None, int]:
    """Returns the id of the remote run, or None without a file, and the step of the last row sent."""
    if not path.exists():
        return None, 0
    match parse_json(files.read(path, files.JSON_BYTES), path):
        case {"id": str(id), "step": int(step)} if ID.fullmatch(id):
            return id, step
    raise ConfigError(f"{path}: holds no id of a remote run; delete it to start a new one")
