"""Reads rlrun commands from stdin and runs each in a fork of this process, so that modules are imported only once.

Each line of stdin is a JSON list of arguments, each line of stdout a JSON object with the result. Executed as a script,
with the code of any commit on its path; it uses only `rlrun.cli.main` of rlrun. The arguments of the script are a first
command, which runs in this process and thereby imports the modules that later commands need.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence

from rlrun.cli import main


def forked(words: Sequence[str]) -> dict[str, int | str]:
    """Runs one command in a fork. Returns its exit code and what it wrote to stdout and stderr."""
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
    """Runs a command and ends this process with its exit code, or with 1 and a traceback if it raises an exception."""
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
    """Runs commands until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of the first command must not be mixed with the results
    code = main(sys.argv[1:])
    if code:
        sys.exit(code)
    for line in sys.stdin:
        print(json.dumps(forked(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve()
