"""Where runs are started: processes of this machine, jobs of Slurm, actors of Ray."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

Main = Callable[[Sequence[str]], int]
"""Runs `rlrun *words` and returns its exit code: `rlrun.cli.main`.

Clusters must not import `rlrun.cli`. They receive this function, or start the programs `rlrun.cli.server` and
`rlrun.cli.task`."""


class Command(NamedTuple):
    """A command `rlrun *words`."""

    name: str  # unique among the commands of one process
    words: list[str]
    log: Path  # NAME.log, to which its output is appended; different for each command


class Ended(NamedTuple):
    """A command that is no longer queued or running."""

    name: str
    exit_code: int | None  # None if it is not known


class Cluster(Protocol):
    """Starts `rlrun` commands. It transfers only their words; the results are the files that commands write."""

    def submit(self, commands: Sequence[Command]) -> str:
        """Starts or queues commands; several are one job array if the cluster has them. Returns their id as text."""

    def adopt(self, commands: Sequence[Command]) -> list[str]:
        """Returns the names of commands that an earlier process submitted one by one, and that are queued or running.

        From then on, `ended` reports them too. Processes of this machine are not adopted: a run's lock shows them.
        """

    def ended(self) -> list[Ended]:
        """Returns the commands that have ended since the last call."""

    def interrupt(self) -> None:
        """Interrupts all commands that have not ended. Their runs write snapshots."""

    def close(self) -> None:
        """Interrupts processes of this machine, and waits until they have ended. Jobs of a cluster go on."""
