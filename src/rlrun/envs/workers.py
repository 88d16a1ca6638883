"""Environments in worker processes, which cannot hang the run, and can be replaced one by one.

Measured on Gymnasium's AsyncVectorEnv 1.4: a worker that is killed gives a bare EOFError, a stopped one is waited for
without end, `close` after either can hang for ever, and no worker can be started again. Here every message has a time
limit, errors come through the pipe (a queue shared by all stays locked where the worker that held it was killed), and
no worker outlives its run, whatever ends it.
"""

import contextlib
import fcntl
import math
import mmap
import multiprocessing
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import CloudpickleWrapper, clear_mpi_env_vars, create_empty_array

from rlrun.envs.autoreset import put
from rlrun.envs.make import Recipe
from rlrun.envs.pool import VectorPool
from rlrun.envs.slot import EnvError, EnvSlot, Form, fault, line
from rlrun.errors import RlrunError
from rlrun.imports import SAFE_PATH, importing, safe_path

# one server imports Gymnasium once; every worker is forked from it, and inherits no pipe and no thread of the run
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PRELOADED = ("rlrun.envs.workers", "rlrun.envs.examination")
ENGINES = ("gymnasium.", "ale_py", "rlrun.")  # preloaded too: an import that fails would take the server with it
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)  # the run decides what they mean
ALIGNMENT = 64  # bytes
TURN_S = 0.2


class SilentError(EnvError):
    """No result in time."""


class DiedError(EnvError):
    """A worker has ended."""


class NotSentError(EnvError):
    """A recipe cannot be sent to a worker, or not be read there."""


class TimedPipe:
    """A worker's pipe. Its methods raise EnvError where the worker has died, or does not respond in time."""

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

    def comes(self, until: float) -> bool:
        """Whether something can be read before this time (`time.monotonic`).

        Waits in short turns, because a signal that arrives just before a wait does not end it.
        """
        while not self.pipe.poll(min(TURN_S, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
        return True

    def send_file(self, descriptor: int) -> None:
        with socket.socket(fileno=os.dup(self.pipe.fileno())) as end:
            try:
                socket.send_fds(end, [b" "], [descriptor])
            except BlockingIOError as error:
                raise self._silent() from error
            except OSError as error:
                raise self._died() from error

    def result(self, wait: bool = True) -> Any:
        """Receive a result. Raises the error that the worker sent instead."""
        result, error = self.recv(wait)
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        self.pipe.close()

    def _silent(self) -> EnvError:
        return SilentError(self.index, f"its worker (pid {self.process.pid}) gave no answer in {self.timeout_s:g} s")

    def _died(self) -> EnvError:
        self.process.join(1.0)
        return DiedError(self.index, f"its worker (pid {self.process.pid}) died, exit code {self.process.exitcode}")


_running: list[Any] = []  # all workers of this process
# they ignore signals, so the interpreter must end them at exit, or it would wait for them
Finalize(None, lambda: end(_running), exitpriority=10)


def started(target: Callable[..., None], recipe: Recipe, timeout_s: float, given: Any = None) -> TimedPipe:
    """Start a worker that runs `target(pipe, index, given, things)`. Returns its pipe. given: the recipe unless set.

    Raises EnvError where it cannot be started, NotSentError where `given` cannot be sent.
    """
    if START == "forkserver":
        engine = str(recipe.spec.entry_point).partition(":")[0]
        multiprocessing.set_forkserver_preload([*PRELOADED, *[engine] * engine.startswith(ENGINES)])
    context: Any = multiprocessing.get_context(START)
    index = recipe.index
    ours, theirs = context.Pipe()
    arguments = (target, index, recipe.modules, theirs, os.environ.get(SAFE_PATH))
    process = context.Process(target=_work, args=arguments, name=f"rlrun env {index}", daemon=True)
    _running.append(process)
    try:
        with clear_mpi_env_vars(), safe_path(), _without_script():
            process.start()
        theirs.close()
        pipe = TimedPipe(ours, index, process, timeout_s)
        if given is None:
            given = recipe
        pipe.send(CloudpickleWrapper(given))
    except BaseException as error:
        end([process])
        ours.close()
        theirs.close()
        if isinstance(error, OSError):
            raise EnvError(index, f"its worker cannot be started ({error})") from error
        if isinstance(error, EnvError) or not isinstance(error, Exception):
            raise
        raise NotSentError(index, f"it cannot be sent to a worker ({line(error)})") from error
    return pipe


def end(processes: list[Any]) -> None:
    """Kill workers, whatever they are doing."""
    begun = [process for process in processes if process.pid is not None]
    for process in begun:
        if process.is_alive():
            process.kill()  # unlike SIGTERM, reaches a stopped process too
    for process in begun:
        process.join()
    _running[:] = [process for process in _running if process not in processes]


def form_of(recipe: Recipe, timeout_s: float) -> Form:
    """The spaces of an environment, which is made in a worker and closed again."""
    pipe = started(work, recipe, timeout_s)
    try:
        return pipe.result().fn
    finally:
        pipe.close()
        end([pipe.process])


class AsyncPool(VectorPool):
    """One process for each environment, shared memory for observations. This process makes no environment."""

    def __init__(self, recipes: list[Recipe], timeout_s: float):
        self.recipes = recipes
        self.timeout_s, self.replay_limit_s = timeout_s, timeout_s / 2
        self.late = False  # one worker has used up the time that all share
        self.processes: list[Any] = []
        self.pipes: list[TimedPipe] = []
        try:
            for index in range(len(recipes)):
                self._begin(index)
            forms = [self._form(index) for index in range(len(recipes))]
            super().__init__(recipes, forms[0])
            self._share_memory()
            for index, form in enumerate(forms):
                self._admit(index, form)
            for index in range(self.num_envs):
                self.result(index)
        except BaseException:
            self.close(terminate=True)
            raise

    def call(self, index: int, method: str, *given: Any) -> None:
        self.late = False
        self.pipes[index].send((method, given))

    def result(self, index: int) -> Any:
        try:
            return self.pipes[index].result(wait=not self.late)
        except SilentError:
            self.late = True
            raise

    def replace(self, index: int) -> None:
        self.pipes[index].close()
        end([self.processes[index]])
        self.late = False
        self._begin(index)
        self._admit(index, self._form(index))
        self.result(index)

    def close_extras(self, terminate: bool = False, **_: Any) -> None:
        """End all workers: with time to close their environments, or at once, whatever they are doing."""
        for pipe in self.pipes:
            pipe.close()  # which ends the loop of its worker
        until = time.monotonic()
        if not terminate:
            until += self.timeout_s
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
        end(self.processes)

    def _begin(self, index: int) -> None:
        """Start a worker, which sends its form as soon as its environment is made."""
        pipe = started(work, self.recipes[index], self.timeout_s)
        self.processes[index : index + 1] = [pipe.process]
        self.pipes[index : index + 1] = [pipe]

    def _form(self, index: int) -> Form:
        """The form that a worker sends once its environment is made."""
        until = time.monotonic()
        if not self.late:
            until += self.timeout_s
        self.late = not self.pipes[index].comes(until)
        return self.result(index).fn

    def _share_memory(self) -> None:
        _, size = arrays(self.single_observation_space, self.num_envs, None)
        self.size = max(1, size)
        self.memory = _memory(self.size)
        Finalize(self, os.close, (self.memory,))
        block = mmap.mmap(self.memory, self.size)
        self.observations, _ = arrays(self.single_observation_space, self.num_envs, block)

    def _admit(self, index: int, form: Form) -> None:
        """Add a worker that has sent its form to the batch; it sends a result when it is ready. Raises EnvError."""
        self.check_form(index, form)
        self.pipes[index].send((self.num_envs, self.size, self.recording))
        self.pipes[index].send_file(self.memory)


def arrays(space: Space, num_envs: int, memory: mmap.mmap | None) -> tuple[Any, int]:
    """A batch of observations in `memory`, and its size in bytes; without memory only the size."""
    used = 0

    def array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nonlocal used
        start, count = used, math.prod(shape)
        used += -(-count * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT
        if memory is None:
            return np.zeros(0, dtype)
        return np.frombuffer(memory, dtype, count, start).reshape(shape)

    observations = create_empty_array(space, num_envs, array)
    return observations, used


def work(pipe: Any, index: int, recipe: Recipe, things: contextlib.ExitStack) -> None:
    """A worker of a pool: calls the requested methods of its slot until its pipe is closed or one of them raises."""
    slot = recipe()
    things.callback(slot.close)
    form: Any = slot.form  # Any: Gymnasium types what is wrapped as a function
    pipe.send((CloudpickleWrapper(form), None))
    num_envs, size, slot.recording = pipe.recv()
    observations, _ = arrays(slot.observation_space, num_envs, _received(pipe, size))
    result = None
    while True:
        pipe.send((result, None))
        method, given = pipe.recv()
        result = getattr(slot, method)(*given)
        if method in EnvSlot.RETURN_OBS:
            obs, result = result
            put(observations, index, obs)


def _work(target: Callable[..., None], index: int, modules: list[str], pipe: Any, safe_path: str | None) -> None:
    """The main function of every worker."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _die_with_run()
    os.environ.pop(SAFE_PATH, None)
    if safe_path is not None:
        os.environ[SAFE_PATH] = safe_path
    with contextlib.ExitStack() as things:  # closed after the last message
        try:
            target(pipe, index, _read(pipe, index, modules), things)
        except (EOFError, ConnectionError):
            pass  # the run has ended, or needs this worker no more
        except RlrunError as error:
            with contextlib.suppress(OSError):
                pipe.send((None, error))
        except Exception as error:
            with contextlib.suppress(OSError):
                pipe.send((None, fault(index, error)))


def _read(pipe: Any, index: int, modules: list[str]) -> Any:
    """Receive what the run sends, after importing the modules that it may need as the run imported them."""
    try:
        for module in modules:
            importing(module, "env")
        return pipe.recv().fn
    except (EOFError, ConnectionError):
        raise
    except Exception as error:
        raise NotSentError(index, f"it cannot be made in a worker ({line(error)})") from error


def _memory(size: int) -> int:
    """The descriptor of a file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rlrun")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _received(pipe: Any, size: int) -> mmap.mmap:
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        _, (descriptor, *_), *_ = socket.recv_fds(end, 1, 1)
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Keep multiprocessing from running the user's script again in every worker, which needs nothing from it: classes
    of a script are sent as code."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _die_with_run() -> None:
    """Have the kernel kill this worker when its run dies, even where it is in an endless loop or stopped (Linux).

    The run holds the other end of the sentinel, a pipe, and its closing is an event that may send any signal.
    """
    run = multiprocessing.parent_process()
    if run is not None and hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(run.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(run.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(run.sentinel, fcntl.F_SETFL, fcntl.fcntl(run.sentinel, fcntl.F_GETFL) | fcntl.FASYNC)
