"""Work that a stop signal aborts, because it may take longer than a cluster waits: the compilation of a kernel."""

from typing import Any


class BrokenOffError(BaseException):
    """A stop signal aborted such work. The tick is lost, so the run continues from its last snapshot.

    A BaseException, so that no compiler handles it as its own error and continues without compiling.
    """


class Breakable:
    """Work between `begin` and `end`, which `interrupt` aborts by raising BrokenOffError."""

    def __init__(self) -> None:
        self.busy = False  # whether such work is under way
        self.interrupted = False

    def begin(self, about: Any = None) -> None:
        self.busy = True
        self.check()

    def end(self, about: Any = None) -> None:
        self.busy = False

    def interrupt(self) -> None:
        """Called by a signal handler. Raises BrokenOffError during the work, else as soon as it begins."""
        self.interrupted = True
        self.check()

    def check(self) -> None:
        """Raises BrokenOffError where the work was interrupted."""
        if self.interrupted and self.busy:
            raise BrokenOffError


compiling = Breakable()  # of this process
