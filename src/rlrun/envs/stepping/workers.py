"""Runs environments in worker processes, which cannot hang the run and can be replaced one by one.

Gymnasium's AsyncVectorEnv (measured: 1.4) is not used for these reasons: if a worker is killed, it raises a bare
EOFError; if a worker is stopped, it waits for ever; after either, `close` can hang; and it cannot restart a worker.
Here every message has a time limit, and no worker outlives its run. Each worker sends its errors through its own pipe,
because a shared queue stays locked if a worker is killed while it holds the lock.
"""

import contextlib
import io
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
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from multiprocessing.util import Finalize
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import CloudpickleWrapper, clear_mpi_env_vars, create_empty_array

from rlrun import memory
from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.autoreset import put
from rlrun.envs.stepping.pool import VectorPool
from rlrun.envs.stepping.slot import EnvError, EnvSlot, Form, fault, line
from rlrun.errors import RlrunError
from rlrun.imports import SAFE_PATH, import_named, safe_path
from rlrun.operating_system import kill_when_closed, signals_of

if TYPE_CHECKING:
    from torch import Tensor

# a server process imports Gymnasium once; workers are forked from it, so they inherit no pipe and no thread of the run
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PRELOADED = ("rlrun.envs.stepping.workers", "rlrun.envs.saving.examination")
# packages of environments that the server also preloads; of others it does not, because a failing import would end the
# server, and preloads torch instead, which takes longer than all else
ENGINES = ("gymnasium.", "ale_py", "rlrun.")
IGNORED = signals_of("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")  # only the run itself handles these
ALIGNMENT = 64  # bytes
WORKER_BYTES = 9 * 2**20  # memory that each worker has for itself; measured: 9.2 MiB with CartPole, the least
TURN_S = 0.2  # the longest single wait in `TimedPipe.comes`


class LostError(EnvError):
    """A worker is lost, with all that it held."""


class SilentError(LostError):
    """A worker did not respond within its time limit."""


class DiedError(LostError):
    """A worker's process has ended."""


class NotSentError(EnvError):
    """The recipe for a worker cannot be pickled, or the worker cannot import or load it."""


def packed(message: object) -> bytes:
    """Returns a message as bytes for `Connection.send_bytes`. The other end receives it by `recv`.

    Tensors are sent as arrays, because torch would leave them in shared memory, for which files stay open.
    """
    file = io.BytesIO()
    pickler = ForkingPickler(file, 5)  # the first protocol that does not copy arrays
    pickler.dispatch_table = _reductions("torch" in sys.modules)  # type: ignore[assignment]
    pickler.dump(message)
    return file.getvalue()


def unpacked(message: bytes) -> object:
    """Returns a message that `packed` has made, in a process of the same run. It could run any code."""
    return ForkingPickler.loads(message)


@cache
def _reductions(tensors: bool) -> dict[type, Callable[..., object]]:
    """Returns how objects of some types are pickled. tensors: whether there can be tensors, as torch is imported."""
    table: dict[type, Callable[..., object]] = {**ForkingPickler(io.BytesIO()).dispatch_table}
    if tensors:
        from torch import Tensor

        table[Tensor] = as_array
    return table


def as_array(tensor: "Tensor") -> tuple[Callable[[np.ndarray], "Tensor"], tuple[np.ndarray]]:
    """Returns a function that makes the tensor again, on the CPU, and its argument."""
    import torch

    return torch.from_numpy, (tensor.detach().cpu().numpy(),)


class TimedPipe:
    """A pipe to a worker.

    Sending and receiving raise SilentError if the worker does not respond within `timeout_s`, and DiedError if it has
    died.
    """

    def __init__(self, pipe: Connection, index: int, process: BaseProcess, timeout_s: float):
        self.pipe, self.index, self.process, self.timeout_s = pipe, index, process, timeout_s
        seconds, micros = divmod(max(1, round(timeout_s * 1e6)), 1_000_000)
        # these socket options limit every read and write, so a message that is sent only in part also times out
        with socket.socket(fileno=os.dup(pipe.fileno())) as connection:
            for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                connection.setsockopt(socket.SOL_SOCKET, limit, struct.pack("@ll", seconds, micros))

    def send(self, message: object) -> None:
        try:
            self.pipe.send_bytes(packed(message))
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
        """Waits until something can be read, or until the time `until` of `time.monotonic`. Returns whether it can.

        The wait is divided into short ones, because a signal that arrives just before a wait begins does not end it.
        """
        while not self.pipe.poll(min(TURN_S, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
        return True

    def send_file(self, descriptor: int) -> None:
        with socket.socket(fileno=os.dup(self.pipe.fileno())) as connection:
            try:
                socket.send_fds(connection, [b" "], [descriptor])
            except BlockingIOError as error:
                raise self._silent() from error
            except OSError as error:
                raise self._died() from error

    def result(self, wait: bool = True) -> Any:
        """Returns the next result of the worker. Raises the error if the worker sent one instead."""
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


_running: list[BaseProcess] = []  # all workers of this process
# workers ignore SIGTERM, so multiprocessing's own cleanup at exit would wait for them without end
Finalize(None, lambda: end(_running), exitpriority=10)


def started(target: Callable[..., None], recipe: Recipe, timeout_s: float, given: Any = None) -> TimedPipe:
    """Starts a worker that runs `target(pipe, index, given, resources)`. Returns its pipe.

    given: by default `recipe`. `resources` is an ExitStack, which the worker closes after its last message. Raises
    EnvError if the worker cannot be started, NotSentError if `given` cannot be pickled.
    """
    if START == "forkserver":
        module = str(recipe.spec.entry_point).partition(":")[0]
        if not module.startswith(ENGINES) or recipe.vectorised:
            module = "torch"  # which the environment may import
        multiprocessing.set_forkserver_preload([*PRELOADED, target.__module__, module])
    context: Any = multiprocessing.get_context(START)
    index = recipe.index
    ours, theirs = context.Pipe()
    arguments = (target, index, recipe.modules, theirs, os.environ.get(SAFE_PATH))
    process = context.Process(target=_run_target, args=arguments, name=f"rlrun env {index}", daemon=True)
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


def end(processes: list[BaseProcess]) -> None:
    """Kills workers and waits until they have ended."""
    begun = [process for process in processes if process.pid is not None]
    for process in begun:
        if process.is_alive():
            process.kill()  # unlike SIGTERM, reaches a stopped process too
    for process in begun:
        process.join()
    _running[:] = [process for process in _running if process not in processes]


def form_of(recipe: Recipe, timeout_s: float) -> Form:
    """Returns the spaces and reward shape of an environment, which is made in a worker. The worker is then killed."""
    pipe = started(serve_slot, recipe, timeout_s)
    try:
        return pipe.result().fn  # the Form, in the wrapper in which `serve_slot` sends it
    finally:
        pipe.close()
        end([pipe.process])


class AsyncPool(VectorPool):
    """Runs every environment in its own worker. Observations are passed in shared memory."""

    def __init__(self, recipes: list[Recipe], timeout_s: float):
        memory.check_fits(f"env.backend=async with {len(recipes):,} environments", len(recipes) * WORKER_BYTES)
        self.recipes = recipes
        self.timeout_s = timeout_s
        self.replay_limit_s = timeout_s / 2  # less than timeout_s, so that a worker can report that it took too long
        self.late = False  # whether one worker has used up the time limit, so that the others are not waited for
        self.processes: list[BaseProcess] = []
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

    def call(self, index: int, method: str, *given: object) -> None:
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

    def close_extras(self, terminate: bool = False, **_: object) -> None:
        """Ends all workers. They have `timeout_s` to close their environments; with `terminate` they are killed."""
        for pipe in self.pipes:
            pipe.close()  # the worker gets an EOFError and leaves its loop
        until = time.monotonic()
        if not terminate:
            until += self.timeout_s
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
        end(self.processes)

    def _begin(self, index: int) -> None:
        """Starts a worker, which sends its Form once it has made its environment."""
        pipe = started(serve_slot, self.recipes[index], self.timeout_s)
        # slices, because they replace a worker that has ended, or append the first one of this index
        self.processes[index : index + 1] = [pipe.process]
        self.pipes[index : index + 1] = [pipe]

    def _form(self, index: int) -> Form:
        """Returns the Form that a worker sends once it has made its environment. Raises EnvError."""
        self.late = not self.pipes[index].comes(time.monotonic() + self.timeout_s)
        return self.result(index).fn

    def _share_memory(self) -> None:
        _, size = shared_observations(self.single_observation_space, self.num_envs, None)
        self.size = max(1, size)
        self.descriptor = _memory(self.size)
        Finalize(self, os.close, (self.descriptor,))
        block = mmap.mmap(self.descriptor, self.size)
        self.observations, _ = shared_observations(self.single_observation_space, self.num_envs, block)

    def _admit(self, index: int, form: Form) -> None:
        """Sends the shared memory to a worker that has sent its Form. The worker replies when it is ready.

        Raises EnvError if its Form differs from the first worker's.
        """
        self.check_form(index, form)
        self.pipes[index].send((index, self.num_envs, self.size, self.recording))
        self.pipes[index].send_file(self.descriptor)


def shared_observations(space: Space, num_envs: int, memory: mmap.mmap | None) -> tuple[Any, int]:
    """Returns a batch of observations in `memory`, and how many bytes of it the batch takes.

    If `memory` is None, all arrays are empty, and the size is still that of the whole batch.
    """
    used = 0

    def array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nonlocal used
        start = used
        count = math.prod(shape)
        blocks = math.ceil(count * np.dtype(dtype).itemsize / ALIGNMENT)
        used += blocks * ALIGNMENT
        if memory is None:
            return np.zeros(0, dtype)
        return np.frombuffer(memory, dtype, count, start).reshape(shape)

    observations = create_empty_array(space, num_envs, array)
    return observations, used


def serve_slot(pipe: Connection, index: int, recipe: Recipe, resources: contextlib.ExitStack) -> None:
    """Runs in a worker of a pool: calls the requested methods of its EnvSlot until the pipe is closed or one raises."""
    slot = recipe()
    resources.callback(slot.close)
    form: Any = slot.form  # Any, because CloudpickleWrapper is annotated for functions only
    pipe.send((CloudpickleWrapper(form), None))
    row, num_envs, size, slot.recording = pipe.recv()
    observations, _ = shared_observations(slot.observation_space, num_envs, _received(pipe, size))
    result = None  # the first result, which reports that the worker is ready
    while True:
        pipe.send((result, None))
        method, given = pipe.recv()
        result = getattr(slot, method)(*given)
        if method in EnvSlot.RETURN_OBS:
            obs, *others = result
            put(observations, row, obs)
            result = (None, *others)


def _run_target(
    target: Callable[..., None], index: int, modules: list[str], pipe: Connection, safe_path: str | None
) -> None:
    """Runs in every worker: receives the argument of `target`, calls it, and sends an error through the pipe."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _die_with_run()
    os.environ.pop(SAFE_PATH, None)  # set only while the worker started; it gets the value that the run has
    if safe_path is not None:
        os.environ[SAFE_PATH] = safe_path
    with contextlib.ExitStack() as resources:  # closed after the last message
        try:
            target(pipe, index, _read(pipe, index, modules), resources)
        except (EOFError, ConnectionError):
            pass  # the run has ended or has closed this pipe
        except RlrunError as error:
            with contextlib.suppress(OSError):
                pipe.send((None, error))
        except Exception as error:
            with contextlib.suppress(OSError):
                pipe.send((None, fault(index, error)))


def _read(pipe: Connection, index: int, modules: list[str]) -> object:
    """Receives the argument of `target`. Imports the user's modules first, in the way the run imported them."""
    try:
        for module in modules:
            import_named(module, "env")
        return pipe.recv().fn
    except (EOFError, ConnectionError):
        raise
    except Exception as error:
        raise NotSentError(index, f"it cannot be made in a worker ({line(error)})") from error


def _memory(size: int) -> int:
    """Returns the descriptor of an unnamed file of `size` bytes: in memory if the system supports it, else on disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rlrun")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _received(pipe: Connection, size: int) -> mmap.mmap:
    with socket.socket(fileno=os.dup(pipe.fileno())) as connection:
        _, (descriptor, *_), *_ = socket.recv_fds(connection, 1, 1)
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Keeps multiprocessing from running the user's script again in every worker.

    A worker does not need the script, because cloudpickle sends classes that are defined in it as code.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _die_with_run() -> None:
    """Makes Linux kill this worker when its run dies, even if the worker is stopped or in an endless loop.

    The sentinel is a pipe whose other end the run holds.
    """
    run = multiprocessing.parent_process()
    if run is not None:
        kill_when_closed(run.sentinel)
