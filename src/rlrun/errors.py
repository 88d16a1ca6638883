"""Errors as users see them: one line (or one line per fault) and an exit code."""

from traceback import walk_tb


class RlrunError(Exception):
    """Shown to the user without a traceback; the process leaves with `exit_code`. One line for each fault."""

    exit_code = 1

    def __init__(self, *faults: str):
        self.faults = tuple(printable(fault) for fault in faults)
        super().__init__("\n".join(self.faults))


class ConfigError(RlrunError):
    """Bad input: found before anything is written. Holds all faults at once, one line each."""

    exit_code = 2


class RunError(RlrunError):
    """A run that had to stop: an environment fault, or numbers that are no longer finite."""


class SnapshotError(RlrunError):
    """A snapshot that cannot be used; the message names the bad part."""

    exit_code = 3


def printable(text: object) -> str:
    """`text` as one line that a terminal only shows: line ends and control codes become escapes like \\x1b."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))


def one_line(error: BaseException) -> str:
    """The text of an exception without line breaks."""
    return " ".join(str(error).split())


def reason(error: BaseException, located: bool = False) -> str:
    """An exception in one line: type, text, and the place where it was raised if `located` or if there is no text."""
    text = one_line(error)
    line = type(error).__name__
    if text:
        line += f": {text}"
    frames = [*walk_tb(error.__traceback__)]
    if (text and not located) or not frames:
        return line
    frame, number = frames[-1]
    return f"{line} in {frame.f_globals.get('__name__')}, line {number}"
