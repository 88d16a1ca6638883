"""Runs shards in a worker process of this machine."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread

from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.workers import TimedPipe, end, packed, started
from rlrun.shards.group import Group
from rlrun.shards.shard import Shard, answers

START_S = 60.0  # a worker imports torch and all agents, for which a short `env.timeout_s` would not suffice
Build = Callable[[Sequence[int]], Mapping[int, Shard]]


class Worker(Group):
    """A group of shards in a process of its own.

    It has `env.timeout_s` for each step and each reset of all its environments. A restore, which may replay whole
    episodes, has no limit, as in the process of the run.
    """

    def __init__(self, shards: Sequence[int], build: Build, one: Recipe, timeout_s: float):
        """Starts to build the shards; `wait` must follow."""
        super().__init__(shards)
        self.pipe: TimedPipe = started(serve, one, timeout_s, (build, shards))
        self.restores = False  # whether the result to come is that of a restore

    def wait(self) -> None:
        self.pipe.comes(time.monotonic() + START_S)
        self.pipe.result()

    def call(self, method: str, given: Sequence[Sequence[object]]) -> None:
        self.restores = method == "load_state"
        self.pipe.send((method, given))

    def result(self) -> list[object]:
        if self.restores:
            self.pipe.comes(math.inf)  # ends if the worker dies
        found: list[object] = self.pipe.result()
        return found

    def close(self, terminate: bool = False) -> None:
        self.pipe.close()  # the worker gets an EOFError and leaves its loop
        if not terminate:
            self.pipe.process.join(self.pipe.timeout_s)
        end([self.pipe.process])


def serve(pipe: Connection, index: int, given: tuple[Build, Sequence[int]], resources: ExitStack) -> None:
    """Runs in the worker: builds the shards and calls their methods until the pipe is closed or one raises."""
    build, numbers = given
    shards = build(numbers).values()
    for shard in shards:
        resources.callback(shard.close)
    pipe.send((None, None))
    with sending(pipe) as send:
        while True:
            for results in answers([*shards], *pipe.recv()):
                send(packed((results, None)))


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
