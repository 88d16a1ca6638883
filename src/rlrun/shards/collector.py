"""Collects steps from all shards: sends what acting reads, and joins what the shards have taken."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.core.collector import Acts, Collector, MemberPolicy
from rlrun.errors import RunError
from rlrun.nested import mapped
from rlrun.schedules.numbers import Schedules
from rlrun.shards.env import ShardedEnv
from rlrun.shards.shard import Taken, Weights, weights_of
from rlrun.tensors import on
from rlrun.types import Events, Step, carried


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
            with self._all_read():
                if meanwhile is not None:
                    meanwhile()
                return [self._joined(*step) for step in self.env.steps(count)]
        found = []
        for number in range(count):
            action, extras = self.act(policy)
            self.env.call("step", self.env.split(action), self.env.split(extras))
            with self._all_read():
                if meanwhile is not None and number == count - 1:
                    meanwhile()
                found.append(self._joined(*self.env.step(self.env.result())))
        return found

    @contextmanager
    def _all_read(self) -> Iterator[None]:
        """Ends all shards after an exception, because the next call would receive steps that were left."""
        try:
            yield
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
        with self._all_read():
            for found in self.env.results():
                yield self._joined(*self.env.step(self._padded(cast(list[Taken | None], found))))

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

    def _joined(self, result: Step, events: Events) -> tuple[Step, Events]:
        """Returns a step of all shards, with what was acted on, and its events."""
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
