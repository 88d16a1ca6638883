"""Shards that outlive their worker: another one begins with the state that the run has kept, and repeats the rest.

What a shard does depends only on its state and on what it is sent. So the repeated steps are the same to the bit, and
those that have arrived before are passed over.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from rlrun.envs.stepping.workers import LostError
from rlrun.shards.group import Group
from rlrun.shards.shard import ShardState, Steps, Weights
from rlrun.shards.worker import LOOK_S, START_S, Given, WorkerGroup, Workers

LOSSES = 3  # workers that may be lost in a row without a new result


@dataclass
class Sent:
    """A method that was called in each shard with the arguments of each, and how much of its results has arrived."""

    method: str
    given: Given
    received: int = 0  # steps of `advance`; else results
    ended: bool = False  # whether the last result has arrived

    @property
    def num_steps(self) -> int:
        """The number of steps that every shard takes; of episodes, whose length is not known, those that arrived."""
        if self.method == "advance":
            return cast(int, self.given[0][0])
        if self.method == "episodes":
            return self.received - self.ended  # the last result has no step
        return int(self.method == "step")

    @property
    def weights(self) -> Weights:
        """The weights that the shards got."""
        if self.method == "advance":
            return cast(Weights, self.given[0][1])
        if self.method == "episodes":
            return cast(Weights, self.given[0][0])
        return {}

    def size(self, found: Sequence[object]) -> int:
        """Returns how much of `received` a result is."""
        if self.method == "advance":
            return len(cast(Steps, found[0]).events)
        return 1

    def receive(self, found: Sequence[object]) -> None:
        """Counts a result."""
        self.received += self.size(found)
        if self.method == "episodes":
            self.ended = all(result is None for result in found)
        else:
            self.ended = self.method != "advance" or self.received == self.num_steps

    def parts(self) -> "list[Sent]":
        """Returns calls that together do what this one does. A part of `advance` has arrived whole, or not at all.

        How many steps come together depends on the time that they take, so they may come in others again.
        """
        if self.method != "advance" or self.ended or not self.received:
            return [self]
        arrived = [(self.received, weights) for _, weights in self.given]
        rest: Given = [(self.num_steps - self.received, {}) for _ in self.given]
        return [Sent(self.method, arrived, self.received), Sent(self.method, rest)]


class Repeating(Group):
    """Shards in a worker of their own. If it is lost, they are in that of other shards until there is another.

    The run keeps their state from time to time, and since then the calls. An answer of a worker that has been replaced
    is never taken for one of its successor, because every worker has a channel of its own.
    """

    def __init__(self, group: WorkerGroup, requested: WorkerGroup | None, workers: Workers, state_every: int):
        """group: the shards as they are built. requested: the same in a worker to come, if that is not their own.

        state_every: steps between states to keep.
        """
        super().__init__(group.shards)
        self.group, self.requested, self.workers, self.state_every = group, requested, workers, state_every
        self.states: Sequence[ShardState] | None = None  # that were kept last; None: the shards as they are built
        self.weights: Weights = {}  # that the shards had then, of those that were sent
        self.calls: list[Sent] = []  # since then
        self.keeps = False  # whether the last call is for the next state to keep
        self.losses = 0  # since the last new result
        if requested is not None:
            self._notify("no worker is free for it yet; it runs in another that has shards")

    def call(self, method: str, given: Given) -> None:
        if self.keeps:
            self._keep()
        self._send(Sent(method, given))
        if sum(call.num_steps for call in self.calls) >= self.state_every:
            self._send(Sent("state", [()] * len(self.shards)))  # is there by the next call
            self.keeps = True

    def result(self) -> list[object]:
        while True:
            try:
                found = self.group.result()
                break
            except LostError as error:
                self._replace(error)
        next(call for call in self.calls if not call.ended).receive(found)
        self.losses = 0
        return found

    def close(self, terminate: bool = False) -> None:
        self.group.close(terminate)
        if self.requested is not None:
            self.requested.close(terminate=True)

    def _send(self, call: Sent) -> None:
        self.calls.append(call)
        try:
            self.group.call(call.method, call.given)
        except LostError as error:
            self._replace(error)

    def _keep(self) -> None:
        """Receives the state of the shards, and forgets the calls that led to it."""
        self.states = cast(list[ShardState], self.result())
        for call in self.calls:
            self.weights |= call.weights
        self.calls, self.keeps = [], False
        group = self._arrived()
        if group is not None:
            self._move(group)

    def _move(self, group: WorkerGroup) -> None:
        """Lets the shards go on in another worker, from the state that was just kept."""
        self.group.close()
        self.group = group
        self._notify("moved to another worker")
        try:
            self._repeat()
        except LostError as error:
            self._replace(error)

    def _replace(self, error: LostError) -> None:
        """Goes on in another worker where the lost one ended. Raises the error if too many were lost in a row."""
        self.losses += 1
        if self.losses > LOSSES:
            raise error
        self.group.close(terminate=True)
        try:
            self.group = self._another()
            self._repeat()
        except LostError as another:
            self._replace(another)
            return
        self._notify(f"{error.reason}; another worker repeats its steps")

    def _another(self) -> WorkerGroup:
        """Returns the shards in the worker that was requested, or in that of others while it is not ready."""
        if self.requested is None:
            self.requested = self.workers.request(self.shards)
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            group = self._arrived() or self.workers.guest(self.shards)
            if group is not None:
                return group
            time.sleep(LOOK_S)
        raise LostError(0, f"no worker was ready in {START_S:g} s")

    def _arrived(self) -> WorkerGroup | None:
        """Returns the shards in the worker that was requested if they are built by now."""
        group = self.requested
        if group is None:
            return None
        self.workers.look(group)
        if group.built:
            self.requested = None
            return group
        if isinstance(group.fault, LostError):
            self.requested = self.workers.request(self.shards)
        elif group.fault is not None:
            if not self.workers.some_live():
                raise group.fault
            self.requested = None
            self._notify(f"cannot move to another worker: {group.fault}")
        return None

    def _notify(self, text: str) -> None:
        self.notices.append(f"shard {', '.join(map(str, self.shards))}: {text}")

    def _repeat(self) -> None:
        """Brings a new worker to where the lost one ended: makes all calls, and passes over what has arrived before."""
        if self.states is not None:
            for method, given in (
                ("load_weights", [(self.weights,)] * len(self.shards)),
                ("load_state", [(state,) for state in self.states]),
            ):
                self.group.call(method, given)
                self.group.result()
        for call in [part for sent in self.calls for part in sent.parts()]:
            self.group.call(call.method, call.given)
            remaining = call.received
            while remaining:
                remaining -= call.size(self.group.result())
