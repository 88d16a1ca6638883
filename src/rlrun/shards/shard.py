"""A shard of a run: a block of its environments with its own copy of what acts.

The process of the run, which learns, sends every shard what acting reads, and joins their steps along the
environments. What a shard does depends only on its state and on what it is sent, so the results do not depend on the
process in which it runs.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import NamedTuple, TypedDict

from torch import Tensor

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.core.collector import Acts, Collector, MemberPolicy
from rlrun.core.logged import log, take_logged
from rlrun.core.random import streams_of
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.schedules.numbers import Schedules
from rlrun.tensors import joined, on, stack
from rlrun.types import NOTHING, Batch, Events, Obs, Step

Weights = dict[str, Tensor]
"""What acting reads and updates change, by name."""

Taken = tuple[Step, Events | None]
"""A step of a shard, without what was acted on, and its events, None for `NOTHING`."""


STEPS_TOGETHER = 64  # in one message at most
TOGETHER_S = 0.05  # seconds in which they are taken, about, so that those of slow environments do not wait


class Steps(NamedTuple):
    """Consecutive steps of a shard, which are sent together: a message of a few large tensors is cheap to read."""

    step: Step  # [steps, block, ...], without what was acted on and without `next_obs`
    next_obs: dict[int, Obs]  # [block, ...] by the index of the step, where it is not the observation to act on next
    events: Sequence[Events | None]  # of each step, None for `NOTHING`


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


def together(found: Sequence[Taken]) -> Steps:
    """Returns consecutive steps as one. Raises KeyError if their keys differ."""
    next_obs: dict[int, Obs] = {}
    steps: list[Step] = []
    for index, (step, _) in enumerate(found):
        if step["next_obs"] is not step["following"]:
            next_obs[index] = step["next_obs"]
        steps.append({name: value for name, value in step.items() if name != "next_obs"})
        if step.keys() != found[0][0].keys():
            raise KeyError(f"two steps of a shard differ by {step.keys() ^ found[0][0].keys()}")
    return Steps(stack(steps), next_obs, [events for _, events in found])


def consecutive(parts: Sequence[Steps]) -> Steps:
    """Returns the steps of all parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    next_obs: dict[int, Obs] = {}
    events: list[Events | None] = []
    for part in parts:
        next_obs |= {len(events) + index: obs for index, obs in part.next_obs.items()}
        events += part.events
    return Steps(joined([part.step for part in parts]), next_obs, events)


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


def grouped(steps: Iterable[tuple[Taken, ...]]) -> Iterator[list[object]]:
    """Yields consecutive steps together, as `Steps` of each shard. What is raised comes after the steps before it."""
    waiting: list[tuple[Taken, ...]] = []
    fault: Exception | None = None
    began = time.monotonic()
    try:
        for step in steps:
            waiting.append(step)
            if len(waiting) == STEPS_TOGETHER or time.monotonic() - began > TOGETHER_S:
                yield [together(own) for own in zip(*waiting, strict=True)]
                waiting = []
                began = time.monotonic()
    except Exception as error:
        fault = error
    if waiting:
        yield [together(own) for own in zip(*waiting, strict=True)]
    if fault is not None:
        raise fault


def answers(shards: Sequence[Shard], method: str, given: Sequence[Sequence[object]]) -> Iterator[list[object]]:
    """Calls a method of each shard with its own arguments. Yields lists of one result for each shard.

    `advance` yields lists of `Steps`, and `episodes` a list for each step, with None for shards that have ended, and
    None for all in a last list. Other methods yield one list.
    """
    results = [getattr(shard, method)(*arguments) for shard, arguments in zip(shards, given, strict=True)]
    if method == "advance":
        yield from grouped(zip(*results, strict=True))
    elif method == "episodes":
        yield from map(list, zip_longest(*results))
        yield [None] * len(shards)
    else:
        yield results
