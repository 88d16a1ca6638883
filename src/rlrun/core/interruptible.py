"""Lets a stop signal interrupt a compilation, because compiling may take longer than a cluster's grace period."""

from collections.abc import Iterator
from contextlib import contextmanager


class CompilationInterruptedError(BaseException):
    """A stop signal interrupted a compilation, in the middle of an update: a resume continues from the last snapshot.

    Derives from BaseException because a compiler may catch Exception and continue without compiling.
    """


class Interruptible:
    """Work that a signal handler ends by `interrupt`."""

    def __init__(self) -> None:
        self.working = False  # whether a block under `work` is running
        self.interrupted = False  # whether `interrupt` was called; `Signals` resets it when the run ends

    @contextmanager
    def work(self) -> Iterator[None]:
        """A context for the work, which `interrupt` ends. Raises at once if `interrupt` was called before."""
        try:
            self.working = True
            self.check()
            yield
        finally:
            self.working = False

    def interrupt(self) -> None:
        """Called by a signal handler. Raises CompilationInterruptedError if the work is running."""
        self.interrupted = True
        self.check()

    def check(self) -> None:
        """Raises CompilationInterruptedError if the work is running and `interrupt` was called."""
        if self.interrupted and self.working:
            raise CompilationInterruptedError


compiling = Interruptible()  # all compilations of this process
