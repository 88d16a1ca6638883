"""Errors that are shown to users as one line per fault, with an exit code."""

from traceback import walk_tb

NO_SPACE = "no space left on the disk"


class RlrunError(Exception):
    """An error that is printed without a traceback, one line for each fault. The process exits with `exit_code`."""

    exit_code = 1

    def __init__(self, *faults: str):
        self.faults = tuple(printable(fault) for fault in faults)
        super().__init__("\n".join(self.faults))


class ConfigError(RlrunError):
    """Invalid input, such as a wrong setting. Lists all faults at once, one line each."""

    exit_code = 2


class RunError(RlrunError):
    """A run had to stop because an environment failed or because a loss or gradient was not finite."""


class SnapshotError(RlrunError):
    """A snapshot cannot be used; the message names its faulty part."""

    exit_code = 3


class FormatError(SnapshotError):
    """A snapshot has a format that this version of rlrun does not read."""

    exit_code = 2


def printable(text: object) -> str:
    """Returns `text` as one line for a terminal: line breaks and control codes become escapes like \\x1b."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


def one_line(error: BaseException) -> str:
    """Returns the text of an exception without line breaks."""
    return " ".join(str(error).split())


def headline(error: BaseException) -> str:
    """Returns the type and the text of an exception as one line."""
    text = one_line(error)
    if not text:
        return type(error).__name__
    return f"{type(error).__name__}: {text}"


def reason(error: BaseException, located: bool = False) -> str:
    """Returns an exception as one line: its type and text. If `located` is true or the text is empty, the module and
    line that raised it follow."""
    line = headline(error)
    frames = [*walk_tb(error.__traceback__)]
    if (one_line(error) and not located) or not frames:
        return line
    frame, number = frames[-1]
    return f"{line} in {frame.f_globals.get('__name__')}, line {number}"
