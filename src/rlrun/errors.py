"""Errors that are shown to users as one line per fault, with an exit code, and the suggestions at the ends of lines."""

import difflib
import os
import shlex
from collections.abc import Iterable
from traceback import walk_tb

PROGRAM = os.environ.get("RLRUN_PROGRAM", "rlrun")  # the first word of commands in messages, as the user types it
NO_SPACE = "no space left on the disk"


class RlrunError(Exception):
    """An error that is printed without a traceback, one line for each different fault.

    The process exits with `exit_code`.
    """

    exit_code = 1

    def __init__(self, *faults: str):
        self.faults = tuple(dict.fromkeys(map(printable, faults)))
        super().__init__("\n".join(self.faults))


class ConfigError(RlrunError):
    """Invalid input, such as a wrong setting. Lists all faults at once, one line each."""

    exit_code = 2


class RunError(RlrunError):
    """A run or a sweep had to stop, for example because an environment failed or because a loss was not finite."""


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


def quoted(text: object) -> str:
    """Returns `text` as one word of a shell, for commands in messages, which are copied and run."""
    return shlex.quote(str(text))


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
    """Returns an exception as one line: its type and text.

    The module and line that raised it follow if `located` is True, or if the exception has no text.
    """
    line = headline(error)
    frames = [*walk_tb(error.__traceback__)]
    is_located = located or not one_line(error)
    if not is_located or not frames:
        return line
    frame, number = frames[-1]
    return f"{line} in {frame.f_globals.get('__name__')}, line {number}"


def undecodable(error: UnicodeDecodeError) -> str:
    """Returns which line and which byte of a file cannot be decoded. error: from decoding the whole file."""
    line = error.object[: error.start].count(b"\n") + 1
    return f"line {line}: byte 0x{error.object[error.start]:02x} is not {error.encoding.upper()}; convert the file"


def closest(word: str, words: Iterable[str], likeness: float = 0.6) -> str | None:
    """Returns the known word that is most similar, or None if none has at least this likeness (difflib, 0 to 1)."""
    by_case = {known.lower(): known for known in words}
    near = difflib.get_close_matches(word.lower(), by_case, n=1, cutoff=likeness)
    if near:
        return by_case[near[0]]
    return None


def nearest(word: str, words: Iterable[str]) -> str:
    """Returns `; did you mean x?` for the most similar of the known words, or "" if none is similar."""
    return did_you_mean(closest(word, words))


def did_you_mean(suggestion: str | None, prefix: str = "") -> str:
    """Returns `; did you mean x?`, the end of a message, or "" without a suggestion. prefix: of the suggestion."""
    if suggestion:
        return f"; did you mean {prefix}{suggestion}?"
    return ""
