"""Where the shards of a run act and step: the parts `cluster=...`. They change no result."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from rlrun import memory
from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.shard_worker import Build, Worker
from rlrun.envs.stepping.shards import Group, Here
from rlrun.settings import PositiveInt, config, register

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


@register("cluster", "local")
class LocalProcesses(Placement):
    """Worker processes of this machine."""

    @config
    class Config:
        workers: PositiveInt | None

    def __init__(self, cfg: Config):
        self.cfg = cfg

    def start(self, count: int, build: Build, one: Recipe, timeout_s: float) -> Sequence[Group]:
        number = min(count, self.cfg.workers or count)
        memory.check_fits(f"cluster=local with {number:,} workers", number * WORKER_BYTES)
        workers: list[Worker] = []
        try:
            for shards in np.array_split(range(count), number):
                workers.append(Worker(shards.tolist(), build, one, timeout_s))
            for worker in workers:
                worker.wait()
        except BaseException:
            for worker in workers:
                worker.close(terminate=True)
            raise
        return workers
