"""The environments of all shards, as trainer and snapshots see them."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import numpy as np
import torch
from torch import nn

from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import RunError
from rlrun.nested import index as rows_of
from rlrun.shards.group import Group
from rlrun.shards.shard import ShardState, Status, Steps, Taken, consecutive
from rlrun.tensors import joined, on, unstacked
from rlrun.types import NOTHING, Episode, Events, Obs, Step

T = TypeVar("T")
INEXACT = "not exact, because "


class ShardedEnv(nn.Module):
    """The environments of all shards, as trainer and snapshots see them. Its extra state is the state of all shards."""

    def __init__(self, one: VectorEnv, groups: Sequence[Group], num_envs: int):
        """one: has one environment, which is never stepped and shows what all are like."""
        super().__init__()
        self.groups = groups
        self.num_shards = sum(len(group.shards) for group in groups)
        self.block = num_envs // self.num_shards  # number of environments of each shard
        self.spec = dataclasses.replace(one.spec, num_envs=num_envs)
        self.name, self.device, self.verdict, self.pool = one.name, one.device, one.verdict, one.pool
        self.digests, self.origin, self.read_reports = one.digests, one.origin, one.read_reports
        self.actions, self.reward_shape = one.actions, one.reward_shape
        self.close_one = one.close

    def each(self, method: str, *columns: Sequence[object]) -> list[object]:
        """Calls a method of every shard. Shard i gets item i of every column. Returns one result for each shard."""
        self.call(method, *columns)
        return self.result()

    def call(self, method: str, *columns: Sequence[object]) -> None:
        """Begins what `each` does; `result` must follow, after `advance` until it has brought all steps.

        Raises RunError if a worker has failed.
        """
        for group in self.groups:
            with self._ended_on_failure(group):
                group.call(method, [[column[shard] for column in columns] for shard in group.shards])

    def result(self) -> list[object]:
        """Returns one result for each shard. Raises RunError if a worker has failed."""
        found: list[object] = []
        for group in self.groups:
            with self._ended_on_failure(group):
                found += group.result()
        return found

    @contextmanager
    def _ended_on_failure(self, group: Group) -> Iterator[None]:
        """Ends all processes if a worker of the group fails, and names its shards in the error."""
        try:
            yield
        except EnvError as error:
            self.close(terminate=True)
            which = ", ".join(map(str, group.shards))
            raise RunError(f"env {self.name}, shard {which}: {error.reason}") from error

    def split(self, tree: T) -> list[T]:
        """Returns the rows [block, ...] of each shard in tensors [num_envs, ...]."""
        starts = range(0, self.spec.num_envs, self.block)
        return [rows_of(tree, slice(start, start + self.block)) for start in starts]

    def results(self) -> Iterator[list[object]]:
        """Yields the results of `episodes`, one for each shard: None for those that have ended, until all have.

        Raises RunError if a worker has failed.
        """
        running = [*self.groups]
        while running:
            found: list[object] = []
            for group in self.groups:
                own: list[object] = [None] * len(group.shards)
                if group in running:
                    with self._ended_on_failure(group):
                        own = group.result()
                    if all(result is None for result in own):
                        running.remove(group)
                found += own
            if running:
                yield found

    def step(self, found: Sequence[object]) -> tuple[Step, Events]:
        """Returns the steps of all shards, joined, without what was acted on. found: a Taken of each shard."""
        steps, events = zip(*cast(Sequence[Taken], found), strict=True)
        step: Step = on(self.device, joined(steps))
        if all(one["next_obs"] is one["following"] for one in steps):
            step["next_obs"] = step["following"]  # one object, as buffers store it only once then
        return step, self._joined(events)

    def steps(self, count: int) -> Iterator[tuple[Step, Events]]:
        """Yields the steps that `advance` was called to take, as `step` returns one. Waits until all have come."""
        shards: list[Steps] = []
        for group in self.groups:
            with self._ended_on_failure(group):
                shards += received(group, count)
        joined_steps: list[Step] = unstacked(on(self.device, joined([steps.step for steps in shards], 1)))
        all_events = zip(*[steps.events for steps in shards], strict=True)
        ended = {index for steps in shards for index in steps.next_obs}
        for index, (step, events) in enumerate(zip(joined_steps, all_events, strict=True)):
            step["next_obs"] = step["following"]
            if index in ended:
                blocks = zip(shards, self.split(step["following"]), strict=True)
                own = [on(self.device, steps.next_obs.get(index, following)) for steps, following in blocks]
                step["next_obs"] = joined(own)
            yield step, self._joined(events)

    def _joined(self, found: Sequence[Events | None]) -> Events:
        """Returns the events of all shards, with the indices that environments have in the run."""
        restarted: list[str] = []
        for group in self.groups:
            restarted += group.notices
            group.notices = []
        if not any(found) and not restarted:
            return NOTHING
        episodes: list[Episode] = []
        own_returns: dict[int, np.ndarray] = {}
        measures: dict[str, list[np.ndarray]] = {}
        logged: list[tuple[str, float]] = []
        for first, events in zip(range(0, self.spec.num_envs, self.block), found, strict=True):
            if events is None:
                continue
            episodes += [episode._replace(env=first + episode.env) for episode in events.episodes]
            own_returns |= {first + row: value for row, value in events.own_returns.items()}
            for name, values in events.measures.items():
                measures.setdefault(name, []).append(torch.as_tensor(values).numpy(force=True))
            logged += events.logged
            restarted += events.restarted
        means = {name: np.concatenate(values) for name, values in measures.items()}
        return Events(episodes, own_returns, means, logged, restarted)

    def reset(self) -> Obs:
        """Starts new episodes in all environments and returns the observations."""
        obs: Obs = on(self.device, joined(self.each("begin")))
        return obs

    def set_parameters(self, parameters: dict[str, float]) -> None:
        """Sets attributes of every environment, by name, when its next episode begins."""
        self.each("set_parameters", [parameters] * self.num_shards)

    def draw_tasks(self) -> None:
        """Gives every environment a new task, as `VectorEnv.draw_tasks` does. A reset must follow."""
        self.each("draw_tasks")

    def pending_episodes(self) -> list[Episode]:
        """Returns ended episodes that no step has reported: always none."""
        return []

    def status(self) -> list[Status]:
        """Returns the status of each shard."""
        return cast(list[Status], self.each("status"))

    @property
    def method(self) -> str:
        """How environments are saved; as that of VectorEnv, to be read before the first step."""
        return self.status()[0].method

    @property
    def exactness(self) -> str:
        """Whether restored environments continue bit for bit: "exact", or "not exact, because ..."."""
        found = dict.fromkeys(status.exactness for status in self.status())
        reasons = [text.removeprefix(INEXACT) for text in found if text != "exact"]
        if reasons:
            return f"{INEXACT}{'; '.join(reasons)}"
        return "exact"

    @property
    def reports_success(self) -> bool:
        """Whether any step so far has reported success."""
        return any(status.reports_success for status in self.status())

    def close(self, terminate: bool = False) -> None:
        """Closes all environments and ends their processes. May be called twice."""
        self.close_one()
        for group in self.groups:
            group.close(terminate)

    def get_extra_state(self) -> dict[str, object]:
        return {"shards": self.each("state")}

    def set_extra_state(self, tree: Mapping[str, Sequence[ShardState]]) -> None:
        """Restores the state of all shards. Raises an exception of any type if it does not fit."""
        if len(tree["shards"]) != self.num_shards:
            raise ValueError(f"it has {len(tree['shards'])} shards")
        try:
            self.each("load_state", tree["shards"])
        except RunError as error:
            if type(error.__cause__) is EnvError:  # raised in a worker that has neither died nor hung
                raise ValueError(error.__cause__.reason) from error
            raise


def received(group: Group, count: int) -> list[Steps]:
    """Returns `count` steps of each shard in a group, which may come in several results."""
    found: list[list[Steps]] = []
    while count:
        found.append(cast(list[Steps], group.result()))
        count -= len(found[-1][0].events)
    return [consecutive(parts) for parts in zip(*found, strict=True)]
