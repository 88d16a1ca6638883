"""Where runs are started: on this machine, and later on clusters."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol


class Ended(NamedTuple):
    """A command that is no longer running."""

    name: str
    exit_code: int | None  # None: it ended without a code, or unseen


class Cluster(Protocol):
    """Starts `rlrun` commands. Only words travel; a command's results are the files that it writes."""

    def submit(self, name: str, words: Sequence[str], log: Path) -> None:
        """Starts the command `rlrun *words`. Its output goes to the file `log`."""

    def ended(self) -> list[Ended]:
        """Returns the commands that have ended since the last call."""

    def close(self) -> None:
        """Interrupts all commands and waits until they have ended."""
