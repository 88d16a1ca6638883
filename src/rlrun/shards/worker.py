"""Workers: processes that run one or more groups of shards."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rlrun.envs.stepping.slot import fault
from rlrun.envs.stepping.workers import LostError
from rlrun.errors import RlrunError
from rlrun.shards.group import Group
from rlrun.shards.shard import Shard, answers

Build = Callable[[Sequence[int]], Mapping[int, Shard]]
Given = Sequence[Sequence[object]]
BUILD, DROP = "build", "drop"  # the only calls that are no methods of a shard


class Worker:
    """Base class of the workers, as the run sees them. A worker ends when the last of its groups is closed."""

    def __init__(self) -> None:
        self.groups: list[Group] = []  # none: it has ended

    def group(self, shards: Sequence[int]) -> "WorkerGroup":
        """Starts to build more shards; `wait` must follow. Raises EnvError if the worker has failed."""
        raise NotImplementedError

    def drop(self, shards: Sequence[int]) -> None:
        """Closes the environments of some shards, without waiting for it."""
        raise NotImplementedError

    def end(self, terminate: bool) -> None:
        """Ends the process, after it has closed its environments unless `terminate`."""
        raise NotImplementedError

    def kill(self) -> None:
        """Ends the process at once. All its groups are lost."""
        self.groups.clear()
        self.end(terminate=True)


class WorkerGroup(Group):
    """Some of the shards in a worker."""

    def __init__(self, worker: Worker, shards: Sequence[int]):
        super().__init__(shards)
        self.worker = worker
        worker.groups.append(self)

    def close(self, terminate: bool = False) -> None:
        """Closes the environments; with `terminate`, the worker is killed with all its groups. May be called twice."""
        if self not in self.worker.groups:
            return
        self.worker.groups.remove(self)
        if terminate:
            self.worker.kill()
        elif self.worker.groups:
            self.worker.drop(self.shards)
        else:
            self.worker.end(terminate=False)


class Workers:
    """The workers of a run."""

    def __init__(self, begin: Callable[[], Worker]):
        """begin: starts another worker."""
        self.begin = begin
        self.admitted: list[Worker] = []  # which have built shards

    def request(self, shards: Sequence[int]) -> WorkerGroup:
        """Begins a worker for these shards; `admit` must follow. It may take long to have room for it."""
        return self.begin().group(shards)

    def admit(self, group: WorkerGroup) -> None:
        """Waits until the shards are built. Raises the error of shards that cannot be built."""
        try:
            group.wait()
        except BaseException:
            group.close(terminate=True)
            raise
        if group.worker not in self.admitted:
            self.admitted.append(group.worker)

    def guest(self, shards: Sequence[int]) -> WorkerGroup | None:
        """Returns these shards, built in the worker with the fewest groups, or None if there is no worker."""
        while living := [worker for worker in self.admitted if worker.groups]:
            self.admitted = living
            worker = min(living, key=lambda worker: len(worker.groups))
            try:
                group = worker.group(shards)
                self.admit(group)
            except LostError:
                worker.kill()
            else:
                return group
        return None


def sendable(index: int, error: Exception) -> Exception:
    """Returns what a worker sends of an error. Call it in the `except` clause that caught it. index: as in EnvError."""
    if isinstance(error, RlrunError):
        return error
    return fault(index, error)


class ShardServer:
    """The shards of a worker, by their numbers."""

    def __init__(self, build: Build):
        self.build = build
        self.shards: dict[int, Shard] = {}

    def answers(self, numbers: Sequence[int], method: str, given: Given) -> Iterator[list[object]]:
        """Calls a method of some shards, as `shard.answers` does, builds them, or closes their environments."""
        if method == BUILD:
            self.shards |= self.build(numbers)
            yield []
        elif method == DROP:
            for number in numbers:
                self.shards.pop(number).close()
        else:
            yield from answers([self.shards[number] for number in numbers], method, given)

    def close(self) -> None:
        """Closes the environments."""
        for shard in self.shards.values():
            shard.close()
