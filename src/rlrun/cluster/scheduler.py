"""Commands that a scheduler queues and starts, maybe hours later and on other machines.

In the queue, a command has the path of its log as its name. When it ends, it writes its exit code to a file beside the
log. Both outlive the process that submitted the command. All machines must share the folder of the runs.
"""

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from rlrun import files
from rlrun.cluster import Command, Ended
from rlrun.cluster.task import exit_code, exit_file
from rlrun.errors import RunError

POLL_S = 10.0  # shortest time between two queries of the queue, which many users share


def label(log: Path) -> str:
    """Returns the name of a command in the queue: the absolute path of its log without the ending."""
    return str(log.absolute().with_suffix(""))


def title(commands: Sequence[Command]) -> str:
    """Returns the name of commands that are queued together: the label of a single one, or the folder of several."""
    labels = [label(command.log) for command in commands]
    if len(labels) == 1:
        return labels[0]
    return os.path.commonpath(labels)


class Scheduler(ABC):
    """Base of the clusters that queue commands."""

    def __init__(self) -> None:
        self.logs: dict[str, Path] = {}  # logs of submitted and adopted commands that have not ended, by name
        self.queried = -math.inf  # time of the last query of the queue

    @abstractmethod
    def start(self, commands: Sequence[Command]) -> str:
        """Queues commands, a single one under its `label`. Returns their id."""

    @abstractmethod
    def queued(self) -> set[str] | None:
        """Returns the labels of the user's commands that are queued or running, or None if the query failed."""

    def submit(self, commands: Sequence[Command]) -> str:
        for command in commands:
            command.log.parent.mkdir(parents=True, exist_ok=True)
            exit_file(command.log).unlink(missing_ok=True)  # of the run's previous rung
            os.close(files.open_to_append(command.log))  # refuses a link now, and not when the job starts
        id = self.start(commands)
        self.logs.update({command.name: command.log for command in commands})
        self.queried = time.monotonic()
        return id

    def adopt(self, commands: Sequence[Command]) -> list[str]:
        queued = self.queued()
        if queued is None:
            raise RunError("the scheduler does not say which runs are queued; try again later")
        found = {}
        for command in commands:
            if label(command.log) in queued and exit_code(command.log) is None:
                found[command.name] = command.log
        self.logs.update(found)
        return list(found)

    def ended(self) -> list[Ended]:
        lost = self._lost()  # before the codes are read, because a command writes its code before it leaves the queue
        found = []
        for name, log in self.logs.items():
            code = exit_code(log)
            if code is not None or name in lost:
                found.append(Ended(name, code))
        for name, _ in found:
            del self.logs[name]
        return found

    @abstractmethod
    def interrupt(self) -> None:
        """As in `Cluster`."""

    @abstractmethod
    def close(self) -> None:
        """As in `Cluster`."""

    def _lost(self) -> set[str]:
        """Returns the names of commands that have left the queue, with an exit code or without."""
        if not self.logs or time.monotonic() - self.queried < POLL_S:
            return set()
        self.queried = time.monotonic()
        queued = self.queued()
        if queued is None:
            return set()
        return {name for name, log in self.logs.items() if label(log) not in queued}
