"""Shards of a run: equal blocks of its environments, each with its own copy of what acts.

The process of the run, which learns, sends every shard what acting reads, and joins their steps along the
environments. What a shard does depends only on its state and on what it is sent, so the results do not depend on the
process in which it runs.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import NamedTuple, TypedDict, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.core.collector import Acts, Collector, MemberPolicy
from rlrun.core.logged import log, take_logged
from rlrun.core.random import streams_of
from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import RunError
from rlrun.nested import index as rows_of
from rlrun.nested import mapped
from rlrun.schedules.numbers import Schedules
from rlrun.tensors import joined, on
from rlrun.types import NOTHING, Batch, Episode, Events, Obs, Step, carried

T = TypeVar("T")
INEXACT = "not exact, because "

Weights = dict[str, Tensor]
"""What acting reads and updates change, by name."""

Taken = tuple[Step, Events | None]
"""A step of a shard, without what was acted on, and its events, None for `NOTHING`."""


def weights_of(agent: Agent, addons: Addons, schedules: Schedules) -> Weights:
    """Returns the tensors that acting reads: of acting modules, of the agent itself, and numbers with a schedule."""
    found: Weights = {f"schedules.{name}": tensor for name, tensor in schedules.named_buffers()}
    own = (*agent.named_parameters(recurse=False), *agent.named_buffers(recurse=False))
    found |= {f"agent.{name}": tensor.detach() for name, tensor in own}
    for place, module in enumerate((*agent.acting(), *addons.acting())):
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            found[f"{place}.{name}"] = tensor.detach()
    return found


class ShardState(TypedDict):
    """All that determines the next steps of a shard, besides weights."""

    env: object
    carry: Batch
    streams: list[dict[str, object]]  # of random numbers


class Status(NamedTuple):
    """How the environments of a shard are saved, and what they have reported; see VectorEnv."""

    method: str
    exactness: str
    reports_success: bool


class Chosen:
    """A policy whose actions and extras were chosen in the process of the run, those of add-ons included."""

    def __init__(self, action: Tensor, extras: Batch):
        self.action, self.extras = action, extras

    def act(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        return self.action, self.extras


class BlockCollector(Collector):
    """Collects the steps of a shard. With a `Chosen` policy, it takes the given actions as they are."""

    def act(self, policy: Acts) -> tuple[Tensor, Batch]:
        if isinstance(policy, Chosen):
            return policy.act(self.obs, self.carry, True)  # without the add-ons of the shard
        return super().act(policy)


class Shard:
    """A block of the environments, with its own agent and add-ons to act for it."""

    def __init__(self, agent: Agent, addons: Addons, schedules: Schedules, env: VectorEnv):
        self.parts = agent, addons, schedules
        self.agent, self.env = agent, env
        self.collector = BlockCollector(agent, addons, env, Clock())
        self.streams = [*streams_of(agent), *streams_of(addons)]

    def begin(self) -> Obs:
        """Resets the environments and returns their observations."""
        self.collector.begin()
        return self.env.obs

    def advance(self, count: int, weights: Weights) -> Iterator[Taken]:
        """Acts and takes `count` steps with these weights, of which those may be missing that have not changed."""
        self.load_weights(weights)
        for _ in range(count):
            with own_logged() as logged:
                step, events = self.collector.advance(self.agent)
            yield taken(step, with_logged(events, logged))

    def episodes(
        self, weights: Weights, counts: Sequence[int], names: Mapping[int, str], seed: int, params: Tensor | None
    ) -> Iterator[Taken]:
        """Yields the steps of new episodes, as `Collector.episodes` does. The first also has what was acted on.

        params: as in MemberPolicy; None: the agent acts.
        """
        self.load_weights(weights)
        policy: Acts = self.agent
        if params is not None:
            policy = MemberPolicy(self.agent, params.to(self.env.device))
        found = self.collector.episodes(counts, names, seed, policy)
        is_first = True
        while True:
            with own_logged() as logged:
                following = next(found, None)
            if following is None:
                return
            step, events = following
            sent, reported = taken(step, with_logged(events, logged))
            if is_first:
                sent |= {"obs": step["obs"], "first": step["first"]}
                is_first = False
            yield sent, reported

    def load_weights(self, weights: Weights) -> None:
        """Acts with these weights from now on. Those may be missing that have not changed."""
        own = weights_of(*self.parts)
        for name, tensor in weights.items():
            own[name].copy_(tensor)

    def step(self, action: Tensor, extras: Batch) -> Taken:
        """Takes one step with actions and extras that the process of the run has chosen."""
        return taken(*self.collector.advance(Chosen(action, on(self.env.device, extras))))

    def set_parameters(self, parameters: dict[str, float]) -> None:
        """Sets attributes of the environments, as `VectorEnv.set_parameters` does."""
        self.env.set_parameters(parameters)

    def draw_tasks(self) -> None:
        """Draws new tasks for the environments, as `VectorEnv.draw_tasks` does."""
        self.env.draw_tasks()

    def status(self) -> Status:
        """Returns what the trainer asks of the environments."""
        return Status(self.env.method, self.env.exactness, self.env.reports_success)

    def state(self) -> ShardState:
        """Returns the state of environments and random streams, and the carry."""
        streams = [stream.get_extra_state() for stream in self.streams]
        return {"env": self.env.get_extra_state(), "carry": self.collector.carry, "streams": streams}

    def load_state(self, state: ShardState) -> None:
        """Restores a state. Raises an exception of any type if it does not fit, because snapshots may be untrusted."""
        self.env.set_extra_state(state["env"])
        for stream, own in zip(self.streams, state["streams"], strict=True):
            stream.set_extra_state(own)
        carry = on(self.env.device, dict(state["carry"]))
        if any(len(value) != self.env.num_envs for value in carry.values()):
            raise ValueError(f"the carry of a shard must be of {self.env.num_envs} environments")
        self.collector.obs, self.collector.carry = self.env.obs, carry

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()


def taken(step: Step, events: Events) -> Taken:
    """Returns a step as it is sent: what was acted on has its receiver already, and read-only dicts are not pickled."""
    sent = {name: value for name, value in step.items() if name not in ("obs", "first")}
    if events is NOTHING:
        return sent, None
    return sent, events._replace(own_returns=dict(events.own_returns), measures=dict(events.measures))


@contextmanager
def own_logged() -> Iterator[list[tuple[str, float]]]:
    """Yields a list that then holds what is logged in the context, without what the process of the run has logged."""
    others = take_logged()
    own: list[tuple[str, float]] = []
    yield own
    own += take_logged()
    for name, value in others:
        log(name, value)


def with_logged(events: Events, logged: Sequence[tuple[str, float]]) -> Events:
    """Returns the events with what an agent has logged."""
    if not logged:
        return events
    return events._replace(logged=[*logged, *events.logged])


def answers(shards: Sequence[Shard], method: str, given: Sequence[Sequence[object]]) -> Iterator[list[object]]:
    """Calls a method of each shard with its own arguments. Yields lists of one result for each shard.

    `advance` yields one list for each step, as soon as it is taken, and other methods one list. So does `episodes`,
    with None for shards that have ended, and None for all in a last list.
    """
    results = [getattr(shard, method)(*arguments) for shard, arguments in zip(shards, given, strict=True)]
    if method == "advance":
        yield from map(list, zip(*results, strict=True))
    elif method == "episodes":
        yield from map(list, zip_longest(*results))
        yield [None] * len(shards)
    else:
        yield results


class Group:
    """Some of the shards, which run in one process."""

    def __init__(self, shards: Sequence[int]):
        """shards: their numbers."""
        self.shards = shards
        self.notices: list[str] = []  # lines for the user, which the reader removes

    def wait(self) -> None:
        """Waits until the shards are built. Raises the error of a shard that cannot be built."""

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
        """Begins what `each` does; `result` must follow, after `advance` once for each step.

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


class ShardedCollector(Collector):
    """Lets the shards act and step, after it has sent them what has changed of the weights since the last time."""

    env: ShardedEnv

    def __init__(self, agent: Agent, addons: Addons, schedules: Schedules, env: ShardedEnv, clock: Clock):
        super().__init__(agent, addons, env, clock)
        self.parts = agent, addons, schedules
        self.known: Weights = {}  # what the shards have

    def collect(
        self, count: int, policy: Acts, meanwhile: Callable[[], object] | None = None
    ) -> list[tuple[Step, Events]]:
        """Takes steps as a Collector does. A policy that is not the agent acts here, for all environments.

        If the policy is the agent, `meanwhile` is called while the shards take all steps.
        """
        if policy is self.agent:
            weights = self._changed()
            self.env.call("advance", [count] * self.env.num_shards, [weights] * self.env.num_shards)
            return self._received(count, meanwhile)
        found = []
        for number in range(count):
            action, extras = self.act(policy)
            self.env.call("step", self.env.split(action), self.env.split(extras))
            found += self._received(1, meanwhile if number == count - 1 else None)
        return found

    def _received(self, count: int, meanwhile: Callable[[], object] | None) -> list[tuple[Step, Events]]:
        """Returns the requested steps of all shards, after `meanwhile`.

        An exception ends all shards, because the next call would receive steps that were left.
        """
        try:
            if meanwhile is not None:
                meanwhile()
            return [self._joined(self.env.result()) for _ in range(count)]
        except BaseException:
            self.env.close(terminate=True)
            raise

    def episodes(
        self, counts: Sequence[int], names: Mapping[int, str], seed: int, policy: Acts | None = None
    ) -> Iterator[tuple[Step, Events]]:
        """Yields the steps of new episodes as a Collector does, from one request to all shards.

        A shard takes no step after its own episodes have ended. Its rows are then masked, and `idle`.
        """
        params: Tensor | None = None
        if isinstance(policy, MemberPolicy):
            params = policy.params.detach().clone()  # which may be sent again, after an update
        elif policy is not None:
            raise RunError("algo.loop.shards: is not supported by a policy that has other state than parameters")
        num_shards, block = self.env.num_shards, self.env.block
        blocks = [range(first, first + block) for first in range(0, len(counts), block)]
        own_names = [{row: names[slot] for row, slot in enumerate(slots) if slot in names} for slots in blocks]
        own_counts = [[counts[slot] for slot in slots] for slots in blocks]
        own_params: list[Tensor | None] = [params] * num_shards
        if params is not None and len(params) > 1:
            own_params = [*self.env.split(params)]
        weights = [self._changed()] * num_shards
        self.env.call("episodes", weights, own_counts, own_names, [seed] * num_shards, own_params)
        try:
            for found in self.env.results():
                yield self._joined(self._padded(cast(list[Taken | None], found)))
        except BaseException:  # the next call would receive the steps that were left
            self.env.close(terminate=True)
            raise

    def _padded(self, found: Sequence[Taken | None]) -> list[Taken]:
        """Returns the steps of all shards, with masked ones for the shards that took none."""
        like = next(one[0] for one in found if one is not None)
        none, every = torch.zeros_like(like["truncated"]), torch.ones_like(like["truncated"])
        before: list[Step] = self.env.split(on(none, {"obs": self.obs, "first": self.carry["first"]}))
        taken_or_not: list[Taken] = []
        for one, acted_on in zip(found, before, strict=True):
            if one is not None:
                step, events = one
                taken_or_not.append((step | {"idle": none}, events))
                continue
            step = {name: mapped(torch.zeros_like, value) for name, value in like.items()}
            step |= {"following": acted_on["obs"], "next_obs": acted_on["obs"], "truncated": every, "idle": every}
            if "obs" in like:
                step |= acted_on
            taken_or_not.append((step, None))
        return taken_or_not

    def _joined(self, found: Sequence[object]) -> tuple[Step, Events]:
        """Returns a step of all shards, with what was acted on. found: a Taken of each shard."""
        result, events = self.env.step(found)
        self.clock.lap("env")
        step = {"obs": self.obs, "action": result["action"], "first": self.carry["first"], **result}
        self.obs = result["following"]
        self.carry = carried(step, result["terminated"] | result["truncated"])
        return step, events

    def _changed(self) -> Weights:
        """Returns copies of the weights that the shards do not have yet."""
        now = weights_of(*self.parts)
        new = {
            name: tensor.clone()
            for name, tensor in now.items()
            if name not in self.known or not torch.equal(tensor, self.known[name])
        }
        self.known |= new
        return new
