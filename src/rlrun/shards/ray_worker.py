"""Runs shards in actors of a Ray cluster."""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import cast

from rlrun.core.collector import LONGEST_EPISODE
from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.slot import EnvError, line
from rlrun.envs.stepping.workers import LostError, packed, unpacked
from rlrun.imports import import_named
from rlrun.shards.worker import BUILD, DROP, START_S, Build, Given, ShardServer, Worker, WorkerGroup, sendable


@dataclass(eq=False)
class Promise:
    """An answer that Ray has promised."""

    answer: object
    limit_s: float | None  # once its actor has given all earlier ones; None: no limit


class RayWorker(Worker):
    """An actor of a Ray cluster.

    It has `env.timeout_s` on average for each step, and for each other call but a restore. Ray must neither restart the
    actor nor repeat a call, because a new actor would not have its state.
    """

    def __init__(self, build: Build, one: Recipe, timeout_s: float, ray: ModuleType, cpus: float):
        """Requests the actor. ray: the module, connected to a cluster."""
        super().__init__()
        self.ray, self.timeout_s = ray, timeout_s
        self.longest = one.time_limit or LONGEST_EPISODE
        actor = ray.remote(Server).options(num_cpus=cpus, max_restarts=0, max_task_retries=0)
        self.actor = actor.remote(one.index)
        self.promised: list[Promise] = []  # and not received, in the order of the requests
        self.begun = [self.request("prepare", START_S, one.modules), self.request("accept", START_S, build)]

    def group(self, shards: Sequence[int]) -> "RayGroup":
        return RayGroup(self, shards)

    def drop(self, shards: Sequence[int]) -> None:
        with contextlib.suppress(Exception):  # an actor that has ended has closed its environments, or cannot
            self.actor.call.remote(packed((shards, DROP, ())))

    def end(self, terminate: bool) -> None:
        if not terminate:
            with contextlib.suppress(Exception):
                self.ray.get(self.actor.close.remote(), timeout=self.timeout_s)
        with contextlib.suppress(Exception):  # after the connection has ended too
            self.ray.kill(self.actor)

    def request(self, method: str, limit_s: float | None, *given: object) -> Promise:
        """Calls a method of the actor."""
        promise = Promise(getattr(self.actor, method).remote(*given), limit_s)
        self.promised.append(promise)
        return promise

    def receive(self, promise: Promise) -> list[list[object]]:
        """Returns an answer. Raises LostError if none comes, and else the error that the actor may have sent."""
        limits = [one.limit_s for one in self.promised[: self.promised.index(promise) + 1]]
        limit_s = None
        if None not in limits:
            limit_s = sum(cast(list[float], limits))
        self.promised.remove(promise)
        try:
            message = self.ray.get(promise.answer, timeout=limit_s)
        except self.ray.exceptions.GetTimeoutError as error:
            raise LostError(0, f"its actor gave no answer in {limit_s:g} s") from error
        except self.ray.exceptions.RayTaskError as error:  # what was sent cannot be read there
            raise EnvError(0, f"it cannot be made in a worker ({line(error)})") from error
        except self.ray.exceptions.RayError as error:
            raise LostError(0, f"its actor is lost ({line(error).partition('. ')[0]})") from error
        results, fault = cast(tuple[list[list[object]], Exception | None], unpacked(message))
        if fault is not None:
            raise fault
        return results


class RayGroup(WorkerGroup):
    """Some of the shards in an actor."""

    worker: RayWorker

    def __init__(self, worker: RayWorker, shards: Sequence[int]):
        super().__init__(worker, shards)
        self.promised: deque[Promise] = deque()  # to this group
        self.results: deque[list[object]] = deque()  # of the last answer that has come
        self.request(START_S, BUILD, ())

    def wait(self) -> None:
        while self.worker.begun:
            self.worker.receive(self.worker.begun.pop(0))
        self.result()

    def ready(self) -> bool:
        ready, _ = self.worker.ray.wait([self.promised[-1].answer], timeout=0)
        return bool(ready)

    def call(self, method: str, given: Given) -> None:
        limit: float | None = self.worker.timeout_s
        if method == "advance":
            limit = self.worker.timeout_s * max(1, int(str(given[0][0])))
        elif method == "episodes":
            most = max(max(cast(Sequence[int], counts)) for _, counts, *_ in given)
            limit = max(self.worker.timeout_s, self.worker.timeout_s * self.worker.longest * most)
        elif method == "load_state":
            limit = None
        self.request(limit, method, given)

    def result(self) -> list[object]:
        if not self.results:
            self.results.extend(self.worker.receive(self.promised.popleft()))
        return self.results.popleft()

    def request(self, limit_s: float | None, method: str, given: Given) -> None:
        self.promised.append(self.worker.request("call", limit_s, packed((self.shards, method, given))))


class Server:
    """The actor: builds shards and calls their methods. Its answers are bytes: a list of results, or an error."""

    def __init__(self, index: int):
        """index: of the environment that errors name."""
        self.index = index

    def prepare(self, modules: Sequence[str]) -> bytes:
        """Imports the modules of the user, as the run imported them."""
        return self._answer(self._prepare, modules)

    def accept(self, build: Build) -> bytes:
        """Receives what builds shards. It can be read only once the modules are imported."""
        self.server = ShardServer(build)
        return packed(([], None))

    def call(self, message: bytes) -> bytes:
        """Calls a method of some shards. message: the arguments of `ShardServer.answers`."""
        return self._answer(self._call, message)

    def close(self) -> None:
        """Closes the environments."""
        self.server.close()

    def _prepare(self, modules: Sequence[str]) -> list[list[object]]:
        for module in modules:
            import_named(module, "env")
        return []

    def _call(self, message: bytes) -> list[list[object]]:
        return [*self.server.answers(*cast(tuple[Sequence[int], str, Given], unpacked(message)))]

    def _answer(self, method: Callable[..., list[list[object]]], *given: object) -> bytes:
        try:
            return packed((method(*given), None))
        except Exception as error:
            return packed((None, sendable(self.index, error)))
