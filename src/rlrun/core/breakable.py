"""Lets a stop signal abort the compilation of a kernel, which may take longer than the grace period of a cluster."""


class BrokenOffError(BaseException):
    """A stop signal aborted a compilation. The current tick is lost, and a resume continues from the last snapshot.

    Derives from BaseException because a compiler may catch Exception and continue without compiling.
    """


class Breakable:
    """Marks work between `begin` and `end`, which `interrupt` aborts by raising BrokenOffError."""

    def __init__(self) -> None:
        self.busy = False  # whether the work has begun and not ended
        self.interrupted = False

    def begin(self, about: object = None) -> None:
        self.busy = True
        self.check()

    def end(self, about: object = None) -> None:
        self.busy = False

    def interrupt(self) -> None:
        """Called by a signal handler. Raises BrokenOffError during the work; if none is under way, the next `begin`
        raises it."""
        self.interrupted = True
        self.check()

    def check(self) -> None:
        """Raises BrokenOffError if `interrupt` was called and the work is under way."""
        if self.interrupted and self.busy:
            raise BrokenOffError


compiling = Breakable()  # all compilations of this process
