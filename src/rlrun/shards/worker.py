"""Workers: processes that run one or more groups of shards."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rlrun.envs.stepping.slot import EnvError, fault
from rlrun.envs.stepping.workers import LostError
from rlrun.errors import RlrunError
from rlrun.shards.group import Group
from rlrun.shards.shard import Shard, answers

Build = Callable[[Sequence[int]], Mapping[int, Shard]]
Given = Sequence[Sequence[object]]
START_S = 60.0  # a worker imports torch and all agents, for which a short `env.timeout_s` would not suffice
LOOK_S = 0.01  # between two looks at workers that start
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
        self.built = False
        self.fault: EnvError | RlrunError | None = None  # why the shards cannot be built
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
    """The workers of a run: some have shards, and for others there may be no room yet."""

    def __init__(self, begin: Callable[[], Worker]):
        """begin: starts another worker."""
        self.begin = begin
        self.living: list[Worker] = []  # which have built shards
        self.requested: list[WorkerGroup] = []  # in a worker of their own, not built yet

    def request(self, shards: Sequence[int]) -> WorkerGroup:
        """Begins a worker for these shards; `look` must follow until they are built."""
        group = self.begin().group(shards)
        self.requested.append(group)
        return group

    def look(self, group: WorkerGroup) -> None:
        """Finds out whether requested shards are built by now, or cannot be."""
        if group in self.requested and group.ready():
            self.requested.remove(group)
            try:
                self.admit(group)
            except (EnvError, RlrunError) as error:
                group.fault = error

    def admit(self, group: WorkerGroup) -> None:
        """Waits until the shards are built. Raises the error of shards that cannot be built."""
        try:
            group.wait()
        except BaseException:
            group.close(terminate=True)
            raise
        group.built = True
        if group.worker not in self.living:
            self.living.append(group.worker)

    def guest(self, shards: Sequence[int]) -> WorkerGroup | None:
        """Returns these shards, built in the living worker with the fewest groups, or None if there is no worker."""
        if not self.some_live():
            for requested in [*self.requested]:
                self.look(requested)
        while self.some_live():
            worker = min(self.living, key=lambda worker: len(worker.groups))
            try:
                group = worker.group(shards)
                self.admit(group)
            except LostError:
                worker.kill()
            else:
                return group
        return None

    def some_live(self) -> bool:
        """Returns whether there is a worker with shards, as far as the run has noticed."""
        self.living = [worker for worker in self.living if worker.groups]
        return bool(self.living)


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
