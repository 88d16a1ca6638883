"""Runs a command for a scheduler. Its output goes to its log, and its exit code to a file beside the log.

The process that submitted the command may have ended long ago.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from rlrun import files
from rlrun.cluster import Main
from rlrun.errors import ConfigError
from rlrun.snapshot.atomic import replace_text

SIGNALLED = 128  # exit codes above this one are those of commands that a signal stopped


def exit_file(log: Path) -> Path:
    """Returns the file of the exit code: NAME.exit for NAME.log."""
    return log.with_suffix(".exit")


def exit_code(log: Path) -> int | None:
    """Returns the exit code of the command with this log, or None if it has not ended."""
    with contextlib.suppress(OSError, ValueError, ConfigError):
        return int(files.read(exit_file(log), files.JSON_BYTES))
    return None


def last_error(log: Path) -> str:
    """Returns the last error in the log of a command that has failed, as one line."""
    try:
        lines = files.read(log, files.METRICS_BYTES).decode(errors="replace").splitlines()
    except (OSError, ConfigError):
        lines = []
    for line in reversed(lines):
        if line.startswith("error: "):
            return line.removeprefix("error: ")
    if lines:
        return f"it ended without an error message; the last line of its log is: {lines[-1]}"
    return "it ended without a message"


def redirect(log: Path) -> None:
    """Appends the output of this process to a file, and closes its input."""
    output = files.open_to_append(log)
    empty, end = os.pipe()
    os.close(end)
    for target, source in ((0, empty), (1, output), (2, output)):
        os.dup2(source, target)


def run(main: Main, words: Sequence[str], log: Path) -> int:
    """Runs `rlrun *words` in this process, and returns its exit code.

    A command that a signal stopped leaves no exit code: its scheduler, or else the driver, starts it again.
    """
    redirect(log)
    try:
        code = main(words)
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    if code <= SIGNALLED:
        replace_text(exit_file(log), f"{code}\n")
    return code
