"""Runs shards in worker processes of this machine."""

import math
import select
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread

from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.workers import TimedPipe, end, packed, started
from rlrun.shards.worker import BUILD, DROP, START_S, Build, Given, ShardServer, Worker, WorkerGroup, sendable

Answer = tuple[list[object], Exception | None]  # results of a group, or what it raised


class LocalWorker(Worker):
    """A process of this machine.

    It has `env.timeout_s` for each step and each reset of all its environments. A restore, which may replay whole
    episodes, has no limit, as in the process of the run.
    """

    def __init__(self, build: Build, one: Recipe, timeout_s: float):
        super().__init__()
        self.pipe: TimedPipe = started(serve, one, timeout_s, build)
        self.answers: defaultdict[int, deque[Answer]] = defaultdict(deque)  # by the first shard of a group

    def group(self, shards: Sequence[int]) -> "LocalGroup":
        return LocalGroup(self, shards)

    def drop(self, shards: Sequence[int]) -> None:
        with suppress(EnvError):  # a worker that has failed has closed its environments, or cannot
            self.pipe.send((shards, DROP, ()))

    def end(self, terminate: bool) -> None:
        self.pipe.close()  # the worker gets an EOFError and leaves its loop
        if not terminate:
            self.pipe.process.join(self.pipe.timeout_s)
        end([self.pipe.process])

    def answer(self, shard: int, limit_s: float | None) -> Answer:
        """Returns the next answer of the group whose first shard is given. limit_s: None: that of the pipe."""
        while not self.answers[shard]:
            if limit_s is not None:
                self.pipe.comes(time.monotonic() + limit_s)  # ends if the worker dies
            other, answer = self.pipe.result()
            self.answers[other].append(answer)
        return self.answers[shard].popleft()


class LocalGroup(WorkerGroup):
    """Some of the shards in a process of this machine."""

    worker: LocalWorker

    def __init__(self, worker: LocalWorker, shards: Sequence[int]):
        super().__init__(worker, shards)
        self.limit_s: float | None = START_S  # for the next answer; None: that of the pipe
        self.send(BUILD, ())

    def wait(self) -> None:
        self.result()

    def ready(self) -> bool:
        return self.worker.pipe.pipe.poll()

    def call(self, method: str, given: Given) -> None:
        self.limit_s = None
        if method == "load_state":
            self.limit_s = math.inf
        self.send(method, given)

    def result(self) -> list[object]:
        results, error = self.worker.answer(self.shards[0], self.limit_s)
        if error is not None:
            raise error
        return results

    def send(self, method: str, given: Given) -> None:
        self.worker.pipe.send((self.shards, method, given))


def serve(pipe: Connection, index: int, build: Build, resources: ExitStack) -> None:
    """Runs in the worker: builds shards and calls their methods until the pipe is closed or one raises.

    The groups take turns: each goes on to its next answer, so none waits for all steps of another.
    """
    server = ShardServer(build)
    resources.callback(server.close)
    running: dict[int, Iterator[list[object]]] = {}  # by the first shard of a group
    with sending(pipe) as send:
        while True:
            while not running or select.select([pipe], [], [], 0)[0]:
                shards, method, given = pipe.recv()
                running[shards[0]] = chain(running.get(shards[0], ()), server.answers(shards, method, given))
            for shard in [*running]:
                try:
                    results = next(running[shard], None)
                except Exception as error:
                    send(packed(((shard, ([], sendable(index, error))), None)))
                    return
                if results is None:
                    del running[shard]
                else:
                    send(packed(((shard, (results, None)), None)))


@contextmanager
def sending(pipe: Connection) -> Iterator[Callable[[bytes], None]]:
    """Yields a function that sends a message without waiting until the run has read those before it.

    A pipe has room for few of them, and the run reads none while it learns. All are sent when the context ends.
    """
    messages: SimpleQueue[bytes | None] = SimpleQueue()

    def work() -> None:
        with suppress(OSError):  # the run has closed the pipe
            while (message := messages.get()) is not None:
                pipe.send_bytes(message)

    def send(message: bytes) -> None:
        if not thread.is_alive():
            raise BrokenPipeError
        messages.put(message)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        yield send
    finally:
        messages.put(None)
        thread.join()
