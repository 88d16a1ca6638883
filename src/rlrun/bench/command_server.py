"""Runs rlrun commands in forks of one warm process: JSON lines of words come in, JSON lines of results go out.

It is executed as a script, with the code of any commit on its path: `rlrun.cli.main` is all that it uses of rlrun. Its
own arguments are the command that imports what the others need.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence

from rlrun.cli import main


def forked(words: Sequence[str]) -> dict[str, int | str]:
    """The exit code of one command, and what it wrote to stdout and stderr."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            leave_with(words)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return {"code": code, "out": out.read(), "err": err.read()}


def leave_with(words: Sequence[str]) -> None:
    """Run a command and end this process with its exit code; 1 and a traceback where it raises."""
    code = 1
    try:
        code = main(words)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the first command prints is no answer
    code = main(sys.argv[1:])
    if code:
        sys.exit(code)
    for line in sys.stdin:
        print(json.dumps(forked(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve()
