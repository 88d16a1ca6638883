"""Shards that run in one process: what the process of the run calls and receives."""

from collections.abc import Iterator, Mapping, Sequence

from rlrun.shards.shard import Shard, answers


class Group:
    """Some of the shards, which run in one process."""

    def __init__(self, shards: Sequence[int]):
        """shards: their numbers."""
        self.shards = shards
        self.notices: list[str] = []  # lines for the user, which the reader removes

    def wait(self) -> None:
        """Waits until the shards are built. Raises the error of a shard that cannot be built."""

    def ready(self) -> bool:
        """Returns whether `wait` need not wait."""
        return True

    def call(self, method: str, given: Sequence[Sequence[object]]) -> None:
        """Calls a method of each shard with its own arguments. Raises EnvError if a worker has failed."""
        raise NotImplementedError

    def result(self) -> list[object]:
        """Returns the next list that `answers` yields for the call. Raises EnvError if a worker has failed."""
        raise NotImplementedError

    def close(self, terminate: bool = False) -> None:
        """Closes the environments; with `terminate`, a worker is killed at once. May be called twice."""
        raise NotImplementedError


class Here(Group):
    """Runs shards one after the other in this process."""

    def __init__(self, shards: Mapping[int, Shard]):
        super().__init__([*shards])
        self.instances = [*shards.values()]
        self.results: Iterator[list[object]] = iter(())

    def call(self, method: str, given: Sequence[Sequence[object]]) -> None:
        self.results = answers(self.instances, method, given)

    def result(self) -> list[object]:
        return next(self.results)

    def close(self, terminate: bool = False) -> None:
        for shard in self.instances:
            shard.close()
