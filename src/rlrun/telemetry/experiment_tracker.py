"""The base class of loggers that send rows to an experiment tracker. A resume continues the same remote run."""

import json
import re
from pathlib import Path
from typing import ClassVar

from rlrun import files
from rlrun.config.stored import parse_json
from rlrun.errors import ConfigError
from rlrun.snapshot.atomic import replace_text
from rlrun.telemetry import sent_before
from rlrun.telemetry.logger import Logger, Start
from rlrun.telemetry.media import Medium
from rlrun.telemetry.metrics import Row

ID = re.compile(r"[\w-]{1,64}", re.ASCII)


class RemoteLogger(Logger):
    """Base class of loggers with a remote run.

    RUN/<name>.json holds the id of the remote run and the step of the last row sent. After a resume, rows up to this
    step are not sent again, although the run logs them again; rows that the remote run lacks are sent first.

    The file may be untrusted. A remote run to which this machine has sent nothing from this folder is not continued: a
    new one begins, with all rows.
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

    def trust(self, run: Path) -> None:
        id, _ = _read(self._file(run))
        if id is not None:
            sent_before.remember(run, self.registered, id)

    def open(self, start: Start) -> None:
        self._path = self._file(start.run)
        id, self._sent = _read(self._path)
        if id is not None and not sent_before.is_remembered(start.run, self.registered, id):
            start.say(
                f"logger.{self.registered}: begins a new remote run, because {self._path.name} names one to which "
                f"this machine has sent nothing from {start.run}"
            )
            id, self._sent = None, 0
        self._sent_before = self._sent  # step of the last row that an earlier process sent
        self._id = self.connect(start, id)
        sent_before.remember(start.run, self.registered, self._id)
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

    def _file(self, run: Path) -> Path:
        return run / f"{self.registered}.json"

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
