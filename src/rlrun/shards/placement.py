"""Where the shards of a run act and step: the parts `cluster=...`. They change no result."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from rlrun import memory
from rlrun.envs.making.make import Recipe
from rlrun.errors import ConfigError
from rlrun.ray_connection import connected
from rlrun.settings import PositiveFloat, PositiveInt, config, register
from rlrun.shards.group import Group, Here
from rlrun.shards.local_worker import Build, Worker
from rlrun.shards.ray_worker import RayWorker
from rlrun.shards.repeating import Repeating

WORKER_BYTES = 27 * 2**20  # memory that each worker has for itself; measured: 27 MiB with PPO on CartPole, the least


class Placement:
    """Base class of the places."""

    registered: ClassVar[str] = "?"
    config: object

    def start(self, count: int, build: Build, one: Recipe, timeout_s: float) -> Sequence[Group]:
        """Returns all shards, of which `build` makes some by their numbers. Raises EnvError if a worker has failed.

        one: the recipe of an environment, whose modules a worker imports. timeout_s: time limit of a step.
        """
        raise NotImplementedError


@register("cluster", "none")
class OwnProcess(Placement):
    """The process of the run, which runs its shards one after the other."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config):
        self.cfg = cfg

    def start(self, count: int, build: Build, one: Recipe, timeout_s: float) -> Sequence[Group]:
        return [Here(build(range(count)))]


@config
class WorkersConfig:
    """Settings of all places with workers."""

    workers: PositiveInt | None
    on_lost: Literal["repeat", "fail"]
    state_every: PositiveInt


class Workers(Placement):
    """Base class of places with workers."""

    def __init__(self, cfg: WorkersConfig):
        self.cfg = cfg

    def begins(self, number: int) -> Callable[..., Group]:
        """Returns what begins one of `number` workers; `wait` must follow. It is called as Worker is."""
        raise NotImplementedError

    def start(self, count: int, build: Build, one: Recipe, timeout_s: float) -> Sequence[Group]:
        number = self.cfg.workers or count
        if number > count:
            raise ConfigError(f"cluster.workers={number}: there are only {count} shards; set algo.loop.shards={number}")
        begin = partial(self.begins(number), build=build, one=one, timeout_s=timeout_s)
        workers = ready([part.tolist() for part in np.array_split(range(count), number)], begin)
        if self.cfg.on_lost == "fail":
            return workers
        return [Repeating(worker, partial(successor, worker.shards, begin), self.cfg.state_every) for worker in workers]


@register("cluster", "local")
class LocalProcesses(Workers):
    """Worker processes of this machine."""

    @config
    class Config(WorkersConfig):
        pass

    def begins(self, number: int) -> Callable[..., Group]:
        memory.check_fits(f"cluster=local with {number:,} workers", number * WORKER_BYTES)
        return Worker


@register("cluster", "ray")
class RayActors(Workers):
    """Actors of a Ray cluster."""

    @config
    class Config(WorkersConfig):
        address: Annotated[str, Field(min_length=1)]
        cpus: PositiveFloat

    cfg: Config

    def begins(self, number: int) -> Callable[..., Group]:
        return partial(RayWorker, ray=connected(self.cfg.address, "cluster.address", "cluster=ray"), cpus=self.cfg.cpus)


def ready(parts: Sequence[Sequence[int]], begin: Callable[[Sequence[int]], Group]) -> list[Group]:
    """Begins a worker for each part of the shards, and returns them once all have built theirs. Raises EnvError."""
    workers: list[Group] = []
    try:
        for shards in parts:
            workers.append(begin(shards))
        for worker in workers:
            worker.wait()
    except BaseException:
        for worker in workers:
            worker.close(terminate=True)
        raise
    return workers


def successor(shards: Sequence[int], begin: Callable[[Sequence[int]], Group]) -> Group:
    """Returns another worker for these shards, as `ready` does."""
    (worker,) = ready([shards], begin)
    return worker
