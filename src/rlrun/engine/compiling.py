"""Compiling a kernel may take a minute, which is longer than a cluster waits: a stop signal ends it at once."""

from typing import Any


class CompileInterruptedError(BaseException):
    """A stop signal met a compiler at work. The tick is lost, so the run goes on from its last snapshot.

    A BaseException, so that no compiler takes it for a fault of its own and goes on without compiling.
    """


class Compiling:
    """Knows when torch compiles, and interrupts that."""

    def __init__(self) -> None:
        self.busy = self.asked = False

    def watch(self) -> None:
        """Be told by torch from now on."""
        from torch._dynamo.callback import callback_handler

        if self.begin not in callback_handler.start_callbacks:
            callback_handler.register_start_callback(self.begin)
            callback_handler.register_end_callback(self.end)

    def begin(self, about: Any) -> None:
        self.busy = True
        self.check()

    def end(self, about: Any) -> None:
        self.busy = False

    def interrupt(self) -> None:
        """Called by a signal handler: raises where it meets the compiler, or as soon as it is called next."""
        self.asked = True
        self.check()

    def check(self) -> None:
        if self.asked and self.busy:
            raise CompileInterruptedError


compiling = Compiling()
