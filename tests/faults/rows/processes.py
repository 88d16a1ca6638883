"""rlrun commands in children of a prepared parent: they start at once and report their state in shared memory."""

import json
import mmap
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # timeout in seconds for work that takes one or two; after that a process counts as hanging

FIELDS = ("inside", "began", "steps", "evaluating", "updating", "writing", "calls", "free")
PHASES = ("writing", "evaluating", "updating")


class Board:
    """Numbers in memory that a process shares with its children; -1 if nothing was written yet."""

    def __init__(self) -> None:
        self.numbers = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
        for name in FIELDS:
            self[name] = -1

    def __getitem__(self, name: str) -> int:
        return self.numbers[FIELDS.index(name)]

    def __setitem__(self, name: str, value: int) -> None:
        self.numbers[FIELDS.index(name)] = value

    def phase(self) -> str:
        """The phase of the process: one of those that the table counts."""
        if self["began"] < 0:
            return "starting"
        return next((name for name in PHASES if self[name] > 0), "collecting")


class Child:
    """One `rlrun` command in a child process, which calls `prepare(board)` first."""

    def __init__(self, words: Sequence[str], log: Path, prepare: Callable[[Board], object] = lambda board: None):
        self.board, self.log = Board(), log
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            _become(words, log, self.board, prepare)
        self.started = time.monotonic()
        self.handle = os.pidfd_open(self.pid)
        self.code: int | None = None

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """Returns the exit code, -n for signal n, or None if the process is still running after so many seconds."""
        if self.code is None and select.select([self.handle], [], [], max(0.0, seconds))[0]:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self.handle)
        return self.code

    def finish(self) -> int:
        """Returns the exit code. A process that hangs is killed: -9."""
        if self.wait() is None:
            self.send(signal.SIGKILL)
        code = self.wait()
        assert code is not None
        return code

    def send(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def _become(words: Sequence[str], log: Path, board: Board, prepare: Callable[[Board], object]) -> None:
    code = 70  # traceback of an exception that the command should have caught
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)  # pytest has put others in their place
        forkserver._forkserver.__init__()  # type: ignore[attr-defined, misc]  # its process is no child of this one
        watch(board)
        prepare(board)
        from rlrun.cli import main

        board["inside"] = 1
        code = main(words)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        board["inside"] = 0
        sys.stdout.flush()
        os._exit(code)


def watch(board: Board) -> None:
    """Makes this process write its number of steps and its phase to the board."""
    from rlrun.run import lifecycle as run
    from rlrun.run.evaluator import Evaluator
    from rlrun.snapshot.store import Store

    build = run.build_loop

    def build_watched(config: Any) -> Any:
        loop = build(config)
        count, tick = loop.count, loop.tick

        def watched_tick() -> Any:
            if board["began"] < 0:
                board["began"] = board["steps"] = loop.steps
            return tick()

        def watched_count(*args: Any) -> Any:
            step = count(*args)
            board["steps"] = loop.steps
            return step

        loop.tick, loop.count = watched_tick, watched_count
        loop.agent.update = marked(loop.agent.update, board, "updating")
        return loop

    run.build_loop = build_watched
    Evaluator.evaluate = marked(Evaluator.evaluate, board, "evaluating")  # type: ignore[method-assign]
    Store._write = marked(Store._write, board, "writing")  # type: ignore[method-assign]


def marked(function: Callable[..., Any], board: Board, name: str) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        board[name] = 1
        try:
            return function(*args, **given)
        finally:
            board[name] = 0

    return call


def warm(words: Sequence[Sequence[str]]) -> None:
    """Imports and builds in this process what the commands need, so that their children start faster."""
    from rlrun.cli import resume, train  # noqa: F401
    from rlrun.config.jobs import jobs
    from rlrun.config.schema import run_config
    from rlrun.run.lifecycle import check

    for command in words:
        check(run_config(jobs(list(command))[0].values))
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # children cannot use a server that is not their child


def aside(task: Callable[[], Any]) -> Any:
    """Returns the result of `task` (JSON), run in a new process. Raises RuntimeError with its traceback if it fails."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        os.close(reader)
        try:
            text = json.dumps({"value": task()})
        except BaseException:
            text = json.dumps({"error": traceback.format_exc()})
        with os.fdopen(writer, "w") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    answer = json.loads(text or '{"error": "the process of this row died"}')
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["value"]
