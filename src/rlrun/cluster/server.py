"""Runs commands in forks of a process that has imported torch and composed a config, so that they start quickly.

Reads one JSON object per line from stdin: {"name": ..., "words": [...], "log": FILE} starts a command, and
{"interrupt": true} interrupts all and ends this process when they have ended. Writes {"name": ..., "exit_code": ...} to
stdout when a command has ended. At the end of stdin this process ends; the commands go on.
"""

import gc
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

from rlrun.cluster import Main
from rlrun.cluster.task import redirect

POLL_S = 0.02
INTERRUPT = (signal.SIGINT,)


def serve(main: Main) -> None:
    """Serves requests until stdin ends or an interrupt is complete."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which sends a request
    _warm_up()
    running: dict[int, str] = {}
    partial = b""  # beginning of the next line
    is_open = True
    is_interrupted = False
    while is_open and (running or not is_interrupted):
        if select.select([0], [], [], POLL_S)[0]:
            received = os.read(0, 1 << 16)
            is_open = bool(received)
            *lines, partial = (partial + received).split(b"\n")
            for request in map(json.loads, lines):
                if "interrupt" in request:
                    is_interrupted = True
                    for pid in running:
                        os.kill(pid, signal.SIGINT)
                else:
                    running[_fork(main, request)] = request["name"]
        for pid, code in _ended(running):
            print(json.dumps({"name": running.pop(pid), "exit_code": code}), flush=True)


def _warm_up() -> None:
    """Imports the modules and fills the caches that all commands need."""
    import rlrun.run.lifecycle  # noqa: F401  imports torch
    from rlrun.config.jobs import jobs

    jobs(["algo=ppo", "env=CartPole"])
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the memory that it shares


def _fork(main: Main, request: dict[str, Any]) -> int:
    """Starts a command in a fork and returns its process id."""
    signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPT)  # an interrupt waits until the command has a handler
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPT)
        return pid
    code = 1
    try:
        os.setsid()
        redirect(Path(request["log"]))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPT)
        code = main(request["words"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(running: dict[int, str]) -> list[tuple[int, int]]:
    """Returns process id and exit code of the commands that have ended. The code of a command that a signal killed is
    negative."""
    found = []
    for pid in running:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            found.append((pid, os.waitstatus_to_exitcode(status)))
    return found
