"""Work that a stop signal breaks off, because it may take longer than a cluster waits: the compiling of a kernel."""

from typing import Any


class BrokenOffError(BaseException):
    """A stop signal met such work. The tick is lost, so the run goes on from its last snapshot.

    A BaseException, so that no compiler takes it for a fault of its own and goes on without compiling.
    """


class Breakable:
    """Work between `begin` and `end`, which `interrupt` breaks off by raising BrokenOffError."""

    def __init__(self) -> None:
        self.busy = self.asked = False

    def begin(self, about: Any = None) -> None:
        self.busy = True
        self.check()

    def end(self, about: Any = None) -> None:
        self.busy = False

    def interrupt(self) -> None:
        """Called by a signal handler: raises where it meets the work, or else as soon as that begins."""
        self.asked = True
        self.check()

    def check(self) -> None:
        if self.asked and self.busy:
            raise BrokenOffError


compiling = Breakable()  # of this process
