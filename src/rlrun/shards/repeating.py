"""Shards that outlive their worker: its successor begins with the state that the run has kept, and repeats the rest.

What a shard does depends only on its state and on what it is sent. So the repeated steps are the same to the bit, and
those that have arrived before are passed over.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from rlrun.envs.stepping.workers import LostError
from rlrun.shards.group import Group
from rlrun.shards.shard import ShardState, Weights

LOSSES = 3  # workers that may be lost in a row without a new result
Given = Sequence[Sequence[object]]


class Sent(NamedTuple):
    """A method that was called in each shard, with the arguments of each."""

    method: str
    given: Given

    @property
    def num_steps(self) -> int:
        """The number of steps that every shard takes; 0 for episodes, whose length is not known."""
        if self.method == "advance":
            return cast(int, self.given[0][0])
        return int(self.method == "step")

    @property
    def weights(self) -> Weights:
        """The weights that the shards got."""
        if self.method == "advance":
            return cast(Weights, self.given[0][1])
        if self.method == "episodes":
            return cast(Weights, self.given[0][0])
        return {}

    def is_last(self, number: int, found: Sequence[object]) -> bool:
        """Returns whether a result is the last that `answers` yields. number: of results up to this one."""
        if self.method == "episodes":
            return all(result is None for result in found)
        if self.method == "advance":
            return number == self.num_steps
        return True


class Repeating(Group):
    """Shards in a worker, which is replaced if it is lost.

    The run keeps their state from time to time, and since then the calls. An answer of a worker that has been replaced
    is never taken for one of its successor, because every worker has a channel of its own.
    """

    def __init__(self, worker: Group, successor: Callable[[], Group], state_every: int):
        """successor: starts a worker that has built the same shards. state_every: steps between states to keep."""
        super().__init__(worker.shards)
        self.worker, self.successor, self.state_every = worker, successor, state_every
        self.states: Sequence[ShardState] | None = None  # that were kept last; None: the shards as they are built
        self.weights: Weights = {}  # that the shards had then, of those that were sent
        self.calls: list[Sent] = []  # since then
        self.method = ""  # that was called last
        self.num_received = 0  # results of these calls
        self.num_steps = 0  # of these calls
        self.keeps = False  # whether the last call is for the next state to keep
        self.losses = 0  # since the last new result

    def call(self, method: str, given: Given) -> None:
        if self.keeps:
            self._keep()
        call = Sent(method, given)
        self._send(call)
        self.num_steps += call.num_steps
        self.method = method
        if self.num_steps >= self.state_every:
            self._send(Sent("state", [()] * len(self.shards)))  # is there by the next call
            self.keeps = True

    def result(self) -> list[object]:
        while True:
            try:
                found = self.worker.result()
                break
            except LostError as error:
                self._replace(error)
        self.num_received += 1
        if self.method == "episodes" and any(result is not None for result in found):
            self.num_steps += 1
        self.losses = 0
        return found

    def close(self, terminate: bool = False) -> None:
        self.worker.close(terminate)

    def _send(self, call: Sent) -> None:
        self.calls.append(call)
        try:
            self.worker.call(*call)
        except LostError as error:
            self._replace(error)

    def _keep(self) -> None:
        """Receives the state of the shards, and forgets the calls that led to it."""
        self.states = cast(list[ShardState], self.result())
        for call in self.calls:
            self.weights |= call.weights
        self.calls, self.num_received, self.num_steps, self.keeps = [], 0, 0, False

    def _replace(self, error: LostError) -> None:
        """Starts a worker that goes on where the lost one ended. Raises the error if too many were lost in a row."""
        self.losses += 1
        if self.losses > LOSSES:
            raise error
        self.worker.close(terminate=True)
        try:
            self.worker = self.successor()
            self._repeat()
        except LostError as another:
            self._replace(another)
            return
        self.notices.append(
            f"shard {', '.join(map(str, self.shards))}: {error.reason}; another worker repeats its steps"
        )

    def _repeat(self) -> None:
        """Brings a new worker to where the lost one ended: sends all calls, and passes over results received before."""
        if self.states is not None:
            for call in (
                Sent("load_weights", [(self.weights,)] * len(self.shards)),
                Sent("load_state", [(state,) for state in self.states]),
            ):
                self.worker.call(*call)
                self.worker.result()
        remaining = self.num_received
        for call in self.calls:
            self.worker.call(*call)
            number, ended = 0, False
            while remaining and not ended:
                number += 1
                remaining -= 1
                ended = call.is_last(number, self.worker.result())
