"""Environments in processes of their own, which cannot hang the run, and can be replaced one by one.

Measured on Gymnasium's AsyncVectorEnv 1.4: a worker that is killed gives a bare EOFError, a stopped one is waited for
without end, `close` after either can hang for ever, and no worker can be started again. Here every message has a time
limit, errors come through the pipe (a queue shared by all stays locked where the worker that held it was killed), and
no worker outlives its run, whatever ends it.
"""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import socket
import struct
import time
from multiprocessing.util import Finalize
from typing import Any

from gymnasium import Space
from gymnasium.vector.utils import (
    CloudpickleWrapper,
    clear_mpi_env_vars,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from rlrun.envs.make import Recipe
from rlrun.envs.pool import Pool
from rlrun.envs.slot import EnvError, Slot, check_spaces, fault

# one server imports Gymnasium once; every worker is forked from it, and inherits no pipe and no thread of the run
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


class SilentError(EnvError):
    """No answer in time."""


class TimedPipe:
    """A worker's pipe. Raises EnvError where the worker has died, or neither reads nor answers in time."""

    def __init__(self, pipe: Any, index: int, process: Any, timeout_s: float):
        self.pipe, self.index, self.process, self.timeout_s = pipe, index, process, timeout_s
        seconds, micros = divmod(max(1, round(timeout_s * 1e6)), 1_000_000)
        with socket.socket(fileno=os.dup(pipe.fileno())) as end:  # limits every read and write, also amid a message
            for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                end.setsockopt(socket.SOL_SOCKET, limit, struct.pack("@ll", seconds, micros))

    def send(self, message: Any) -> None:
        try:
            self.pipe.send(message)
        except BlockingIOError as error:
            raise self._silent() from error
        except OSError as error:
            raise self._died() from error

    def recv(self, wait: bool = True) -> Any:
        if not wait and not self.pipe.poll():
            raise self._silent()
        try:
            return self.pipe.recv()
        except BlockingIOError as error:
            raise self._silent() from error
        except (EOFError, OSError) as error:
            raise self._died() from error

    def close(self) -> None:
        self.pipe.close()

    def _silent(self) -> EnvError:
        return SilentError(self.index, f"its worker (pid {self.process.pid}) gave no answer in {self.timeout_s:g} s")

    def _died(self) -> EnvError:
        self.process.join(1.0)
        return EnvError(self.index, f"its worker (pid {self.process.pid}) died, exit code {self.process.exitcode}")


class Workers(Pool):
    """One process for each environment, shared memory for observations."""

    def __init__(self, recipes: list[Recipe], timeout_s: float):
        example = recipes[0]()  # shows a fault of the config here, where it is explained
        super().__init__(recipes, example)
        example.close()
        self.timeout_s, self.patience_s = timeout_s, timeout_s / 2
        if START == "forkserver":
            engine = str(recipes[0].spec.entry_point).partition(":")[0]
            multiprocessing.set_forkserver_preload(["rlrun.envs.make", engine])
        self.context: Any = multiprocessing.get_context(START)
        space = self.single_observation_space
        self.memory = create_shared_memory(space, self.num_envs, self.context)  # type: ignore[arg-type]
        self.observations = read_from_shared_memory(space, self.memory, self.num_envs)
        self.late = False  # one worker has used up the time that all have to answer
        self.processes: list[Any] = []
        self.pipes: list[TimedPipe] = []
        # workers ignore signals, so an interpreter that leaves without `close` must not wait for them
        self._finalizer = Finalize(None, _kill, (self.processes,), exitpriority=10)
        try:
            for index in range(self.num_envs):
                self._begin(index)
            for index in range(self.num_envs):
                self.answer(index)
        except BaseException:
            self.close(terminate=True)
            raise

    def ask(self, index: int, method: str, *given: Any) -> None:
        self.late = False
        self.pipes[index].send((method, given))

    def answer(self, index: int) -> Any:
        try:
            answer, error = self.pipes[index].recv(wait=not self.late)
        except SilentError:
            self.late = True
            raise
        if error is not None:
            raise error
        return answer

    def replace(self, index: int) -> None:
        self.pipes[index].close()
        _kill([self.processes[index]])
        self.late = False
        try:
            self._begin(index)
        except OSError as error:
            raise EnvError(index, f"its worker cannot be started ({error})") from error
        self.answer(index)

    def close_extras(self, terminate: bool = False, **_: Any) -> None:
        """End all workers: with time to close their environments, or at once, whatever they are doing."""
        for pipe in self.pipes:
            pipe.close()  # which they read as the end
        end = time.monotonic() + (0.0 if terminate else self.timeout_s)
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        self._finalizer()

    def _begin(self, index: int) -> None:
        """Start a worker. It answers as soon as its environment is made."""
        ours, theirs = self.context.Pipe()
        recipe = CloudpickleWrapper(self.recipes[index])
        given = (index, recipe, theirs, self.spaces, self.memory, self.recording)
        process = self.context.Process(target=work, args=given, name=f"rlrun env {index}", daemon=True)
        with clear_mpi_env_vars():
            process.start()
        theirs.close()
        self.processes[index : index + 1] = [process]
        self.pipes[index : index + 1] = [TimedPipe(ours, index, process, self.timeout_s)]


def work(
    index: int, recipe: CloudpickleWrapper, pipe: Any, spaces: tuple[Space, Space], memory: Any, recording: bool
) -> None:
    """A worker: calls the methods of its slot, as asked, until its pipe is closed or one of them raises."""
    _die_with_run()
    slot = None
    try:
        slot = _made(index, recipe)
        check_spaces(slot, index, spaces)
        slot.recording = recording
        answer = None
        while True:
            pipe.send((answer, None))
            method, given = pipe.recv()
            answer = getattr(slot, method)(*given)
            if method in Slot.SHOWS:
                obs, answer = answer
                write_to_shared_memory(spaces[0], index, obs, memory)
    except (EOFError, ConnectionError):
        pass  # the run is gone, or done with this worker
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send((None, fault(index, error)))
    finally:
        if slot is not None:
            slot.close()


def _made(index: int, recipe: CloudpickleWrapper) -> Any:
    try:
        return recipe()
    except Exception as error:
        raise fault(index, error) from error


def _die_with_run() -> None:
    """In a worker, which may be in an endless loop or stopped when its run is killed: the kernel ends it then.

    The run holds the other end of the sentinel, a pipe, and its closing is an event that may send any signal (Linux).
    """
    run = multiprocessing.parent_process()
    if run is not None and hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(run.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(run.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(run.sentinel, fcntl.F_SETFL, fcntl.fcntl(run.sentinel, fcntl.F_GETFL) | fcntl.FASYNC)


def _kill(processes: list[Any]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()  # unlike SIGTERM, reaches a stopped process too
    for process in processes:
        process.join()
