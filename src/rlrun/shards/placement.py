"""Where the shards of a run act and step: the parts `cluster=...`. They change no result."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from rlrun import memory
from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.workers import LostError
from rlrun.errors import ConfigError
from rlrun.ray_connection import connected
from rlrun.settings import PositiveFloat, PositiveInt, config, register
from rlrun.shards.group import Group, Here
from rlrun.shards.local_worker import LocalWorker
from rlrun.shards.ray_worker import RayWorker
from rlrun.shards.repeating import Repeating
from rlrun.shards.worker import LOOK_S, START_S, Build, Worker, WorkerGroup, Workers

JOIN_S = 10.0  # within which another worker must be ready at the start of a run, or else join it later
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


class WorkerProcesses(Placement):
    """Base class of places with workers."""

    def __init__(self, cfg: WorkersConfig):
        self.cfg = cfg

    def begins(self, number: int) -> Callable[..., Worker]:
        """Returns what begins one of `number` workers. It is called as LocalWorker is."""
        raise NotImplementedError

    def start(self, count: int, build: Build, one: Recipe, timeout_s: float) -> Sequence[Group]:
        number = self.cfg.workers or count
        if number > count:
            raise ConfigError(f"cluster.workers={number}: there are only {count} shards; set algo.loop.shards={number}")
        workers = Workers(partial(self.begins(number), build=build, one=one, timeout_s=timeout_s))
        parts = [part.tolist() for part in np.array_split(range(count), number)]
        groups: list[WorkerGroup] = []
        try:
            for shards in parts:
                groups.append(workers.request(shards))
            if self.cfg.on_lost == "fail":
                for group in groups:
                    workers.admit(group)
                return groups
            return [Repeating(*found, workers, self.cfg.state_every) for found in settled(groups, workers)]
        except BaseException:
            for group in groups:
                group.close(terminate=True)
            raise


@register("cluster", "local")
class LocalProcesses(WorkerProcesses):
    """Worker processes of this machine."""

    @config
    class Config(WorkersConfig):
        pass

    def begins(self, number: int) -> Callable[..., Worker]:
        memory.check_fits(f"cluster=local with {number:,} workers", number * WORKER_BYTES)
        return LocalWorker


@register("cluster", "ray")
class RayActors(WorkerProcesses):
    """Actors of a Ray cluster."""

    @config
    class Config(WorkersConfig):
        address: Annotated[str, Field(min_length=1)]
        cpus: PositiveFloat

    cfg: Config

    def begins(self, number: int) -> Callable[..., Worker]:
        return partial(RayWorker, ray=connected(self.cfg.address, "cluster.address", "cluster=ray"), cpus=self.cfg.cpus)


def settled(groups: Sequence[WorkerGroup], workers: Workers) -> list[tuple[WorkerGroup, WorkerGroup | None]]:
    """Waits for the workers. Returns the shards of each group, built, and in a worker to come if it is not ready.

    Raises the error of shards that cannot be built, and LostError if no worker is ready in time or all are lost.
    """
    until = time.monotonic() + START_S
    waiting = [*groups]
    while waiting and time.monotonic() < until:
        time.sleep(LOOK_S)
        for group in [*waiting]:
            workers.look(group)
            if group.built:
                until = time.monotonic() + JOIN_S
            elif group.fault is None:
                continue
            elif not isinstance(group.fault, LostError):
                raise group.fault
            waiting.remove(group)
    found: list[tuple[WorkerGroup, WorkerGroup | None]] = []
    for group in groups:
        if group.built:
            found.append((group, None))
        elif guest := workers.guest(group.shards):
            found.append((guest, group))
        else:
            raise group.fault or LostError(0, f"no worker was ready in {START_S:g} s")
    return found
