"""Environments in processes of their own: Gymnasium's AsyncVectorEnv, made unable to hang and quick to start.

Measured on Gymnasium 1.4: a worker that is killed gives a bare EOFError, a stopped one is waited for without end, and
`close` after either can hang for ever. Here every answer is awaited with a time limit, and a fault names its worker.
"""

import contextlib
import multiprocessing
import queue
from collections.abc import Iterable
from multiprocessing.util import Finalize
from typing import Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from rlrun.envs.make import Recipe
from rlrun.envs.slot import EnvError

# one server imports Gymnasium once; every worker is forked from it, and inherits no pipe and no thread of the run
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


class TimedPipe:
    """A worker's pipe. Raises EnvError where the worker has died or does not answer in time."""

    def __init__(self, pipe: Any, index: int, process: Any, timeout_s: float):
        self.pipe, self.index, self.process, self.timeout_s = pipe, index, process, timeout_s

    def send(self, message: Any) -> None:
        try:
            self.pipe.send(message)
        except OSError as error:
            raise self._died() from error

    def recv(self) -> Any:
        if not self.pipe.poll(self.timeout_s):
            raise EnvError(self.index, f"its worker (pid {self.process.pid}) gave no answer in {self.timeout_s:g} s")
        try:
            return self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error

    def close(self) -> None:
        self.pipe.close()

    @property
    def closed(self) -> bool:
        return self.pipe.closed

    def _died(self) -> EnvError:
        self.process.join(1.0)
        return EnvError(self.index, f"its worker (pid {self.process.pid}) died, exit code {self.process.exitcode}")


class Workers(AsyncVectorEnv):
    """One process for each environment, shared memory for observations, resets within the step."""

    def __init__(self, recipes: list[Recipe], timeout_s: float):
        self.timeout_s = timeout_s
        if START == "forkserver":
            engine = str(recipes[0].spec.entry_point).partition(":")[0]
            multiprocessing.set_forkserver_preload(["rlrun.envs.make", engine])
        super().__init__(recipes, copy=False, context=START, autoreset_mode=AutoresetMode.SAME_STEP)
        # workers ignore signals, so an interpreter that leaves without `close` must not wait for them
        self._finalizer = Finalize(None, _kill, (list(self.processes),), exitpriority=10)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End all workers: with time to close their environments, or at once, whatever they are doing."""
        if not terminate and self._state is AsyncState.DEFAULT:
            for pipe in self.parent_pipes:
                with contextlib.suppress(EnvError):
                    pipe.send(("close", None))
            for process in self.processes:
                process.join(self.timeout_s if timeout is None else timeout)
        self._finalizer()
        for pipe in self.parent_pipes:
            pipe.close()

    def _check_spaces(self) -> None:  # the constructor's last step, and the first that waits for an answer
        workers = enumerate(zip(self.parent_pipes, self.processes, strict=True))
        self.parent_pipes: list[Any] = [
            TimedPipe(pipe, index, process, self.timeout_s) for index, (pipe, process) in workers
        ]
        try:
            super()._check_spaces()
        except Exception:
            _kill(self.processes)
            self.closed = True
            raise

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        successes = list(successes)
        if all(successes):
            return
        try:
            index, _, error, trace = self.error_queue.get(timeout=self.timeout_s)
        except queue.Empty:  # the error could not be sent
            index, error, trace = successes.index(False), "raised", ""
        if isinstance(error, EnvError):
            raise error
        raise EnvError(index, " ".join(str(error).split()), trace)


def _kill(processes: list[Any]) -> None:
    for process in processes:
        process.kill()  # unlike SIGTERM, reaches a stopped process too
    for process in processes:
        process.join()
