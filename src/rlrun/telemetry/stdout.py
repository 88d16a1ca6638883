"""What stdout is and can write, and what happens when its reader has exited."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console as RichConsole


def terminal_of_stdout() -> "RichConsole | None":
    """Returns the terminal that stdout is, or None for a file, a pipe, and a terminal without control codes."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    import rich.console

    terminal = rich.console.Console(file=sys.stdout)
    if terminal.is_interactive:  # False for TERM=dumb
        return terminal
    return None


def replace_unknown_letters() -> None:
    """Lets stdout write a question mark for a letter that it cannot encode, so that no letter ends a run."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")


def can_write(text: str) -> bool:
    """Returns whether stdout can encode a text."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def stdout_may_close() -> Iterator[None]:
    """As a context manager for writing to stdout: if the reader has exited, stdout becomes /dev/null.

    Training then continues after `| head` or in a closed terminal.
    """
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
