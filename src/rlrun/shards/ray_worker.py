"""Runs shards in an actor of a Ray cluster."""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import cast

from rlrun.core.collector import LONGEST_EPISODE
from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping import slot
from rlrun.envs.stepping.workers import LostError, packed, unpacked
from rlrun.errors import RlrunError
from rlrun.imports import import_named
from rlrun.shards.group import Group
from rlrun.shards.local_worker import START_S, Build
from rlrun.shards.shard import Shard, answers


class RayWorker(Group):
    """A group of shards in an actor of its own.

    It has `env.timeout_s` on average for each step, and for each other call but a restore. Ray must neither restart the
    actor nor repeat a call, because a new actor would not have its state.
    """

    def __init__(
        self, shards: Sequence[int], build: Build, one: Recipe, timeout_s: float, ray: ModuleType, cpus: float
    ):
        """Requests the actor, which builds the shards; `wait` must follow. ray: the module, connected to a cluster."""
        super().__init__(shards)
        self.ray, self.timeout_s = ray, timeout_s
        self.longest = one.time_limit or LONGEST_EPISODE
        actor = ray.remote(Server).options(num_cpus=cpus, max_restarts=0, max_task_retries=0)
        self.actor = actor.remote(one.index)
        self.promised: deque[tuple[object, float | None]] = (
            deque()
        )  # answers that Ray has promised, with their time limits
        self.results: deque[list[object]] = deque()  # of the last answer that has come
        self._request("prepare", START_S, one.modules)
        self._request("build", START_S, build, shards)

    def wait(self) -> None:
        self._next()
        self._next()

    def call(self, method: str, given: Sequence[Sequence[object]]) -> None:
        limit: float | None = self.timeout_s
        if method == "advance":
            limit = self.timeout_s * max(1, int(str(given[0][0])))
        elif method == "episodes":
            limit = self.timeout_s * self.longest * max(max(cast(Sequence[int], counts)) for _, counts, *_ in given)
            limit = max(self.timeout_s, limit)
        elif method == "load_state":
            limit = None
        self._request("call", limit, packed((method, given)))

    def result(self) -> list[object]:
        if not self.results:
            self._next()
        return self.results.popleft()

    def close(self, terminate: bool = False) -> None:
        if not terminate:
            with contextlib.suppress(Exception):  # an actor that has ended has closed its environments, or cannot
                self.ray.get(self.actor.close.remote(), timeout=self.timeout_s)
        with contextlib.suppress(Exception):  # after the connection has ended too
            self.ray.kill(self.actor)

    def _request(self, method: str, limit: float | None, *given: object) -> None:
        self.promised.append((getattr(self.actor, method).remote(*given), limit))

    def _next(self) -> None:
        """Receives the next answer. Raises LostError if none comes, and else the error that the actor may have sent."""
        answer, limit = self.promised.popleft()
        try:
            message = self.ray.get(answer, timeout=limit)
        except self.ray.exceptions.GetTimeoutError as error:
            raise LostError(0, f"its actor gave no answer in {limit:g} s") from error
        except self.ray.exceptions.RayTaskError as error:  # what was sent cannot be read there
            raise slot.EnvError(0, f"it cannot be made in a worker ({slot.line(error)})") from error
        except self.ray.exceptions.RayError as error:
            raise LostError(0, f"its actor is lost ({slot.line(error).partition('. ')[0]})") from error
        results, fault = cast(tuple[list[list[object]], Exception | None], unpacked(message))
        if fault is not None:
            raise fault
        self.results.extend(results)


class Server:
    """The actor: builds shards and calls their methods. Its answers are bytes: a list of results, or an error."""

    def __init__(self, index: int):
        """index: of the environment that errors name."""
        self.index = index
        self.shards: list[Shard] = []

    def prepare(self, modules: Sequence[str]) -> bytes:
        """Imports the modules of the user, as the run imported them."""

        def imported() -> list[list[object]]:
            for module in modules:
                import_named(module, "env")
            return []

        return self._answer(imported)

    def build(self, build: Build, numbers: Sequence[int]) -> bytes:
        """Builds the shards."""

        def built() -> list[list[object]]:
            self.shards = [*build(numbers).values()]
            return []

        return self._answer(built)

    def call(self, message: bytes) -> bytes:
        """Calls a method of the shards. message: its name, and the arguments of each."""
        return self._answer(lambda: [*answers(self.shards, *cast(tuple[str, list[list[object]]], unpacked(message)))])

    def close(self) -> None:
        """Closes the environments."""
        for shard in self.shards:
            shard.close()

    def _answer(self, call: Callable[[], list[list[object]]]) -> bytes:
        try:
            return packed((call(), None))
        except RlrunError as error:
            return packed((None, error))
        except Exception as error:
            return packed((None, slot.fault(self.index, error)))
