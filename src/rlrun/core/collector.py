"""Acts and steps in environments. Counts nothing and trains nothing, so an evaluation can use it too."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.core.previous import of_step
from rlrun.core.random import Stream, seed_for, streams_of
from rlrun.errors import RunError
from rlrun.types import Batch, Events, Obs, Spec, Step, carried, measured

LONGEST_EPISODE = 10_000  # timesteps that may pass without the end of an episode, unless the time limit is longer


class Acts(Protocol):
    """Chooses actions, as an agent does (`Agent.act`)."""

    def act(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Tensor, Batch]: ...


class MemberPolicy:
    """Acts with parameters [num_envs, P] of each environment, or [1, P] of all, in place of the agent's own."""

    def __init__(self, agent: Agent, params: Tensor):
        self.agent, self.params = agent, params

    def act(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        return self.agent.act(obs, carry, explore, self.params)


class Collector:
    """Acts in the environments and returns their steps. Holds the current observations and the carry."""

    def __init__(self, agent: Agent, addons: Addons, env: Any, clock: Clock):
        self.agent, self.addons, self.env, self.clock = agent, addons, env, clock
        self.obs: Any = None  # observations to act on next
        self.carry: Batch = {}

    def begin(self) -> None:
        """Resets all environments."""
        self.obs = self.env.reset()
        self.carry = {"first": torch.ones(self.env.spec.num_envs, dtype=torch.bool, device=self.env.device)}

    def start(self, names: Mapping[int, str], seed: int) -> None:
        """Starts a new episode in each of these environments, by its index.

        The name of an episode and `seed` determine the environment's seed, and what agent and add-ons draw for it until
        `join` is called.
        """
        seeds: dict[int, int] = {}
        for slot, name in names.items():
            seeds[slot] = seed_for(seed, f"episode {name}") >> 32  # some environments accept only 31 bits
            for stream in self._streams():
                stream.split(slot, name)
        self.obs = self.env.start(seeds)
        first = self.carry["first"]
        self.carry["first"] = first.index_fill(0, torch.tensor(list(seeds), device=first.device), True)

    def join(self) -> None:
        """Lets agent and add-ons draw for all environments together again, after `start`."""
        for stream in self._streams():
            stream.join()

    def _streams(self) -> list[Stream]:
        return [*streams_of(self.agent), *streams_of(self.addons)]

    def collect(
        self, count: int, policy: Acts, meanwhile: Callable[[], object] | None = None
    ) -> list[tuple[Step, Events]]:
        """Acts and takes `count` steps in every environment. Returns each with observation, action and extras, and its
        events.

        meanwhile: is called once all actions are chosen, while workers take the last step.
        """
        found = []
        for number in range(count):
            action, extras = self.act(policy)
            if meanwhile is not None and number == count - 1:
                self.env.begin(action)
                self.clock.lap("env")
                meanwhile()
            result, events = self.env.step(action)
            self.clock.lap("env")
            if self.addons.reads_previous:
                extras = extras | of_step(result, self.addons.reads_previous)
            step = {"obs": self.obs, "action": action, "first": self.carry["first"], **result, **extras}
            if own := measured(extras):
                events = events._replace(measures={**own, **events.measures})
            self.obs = result["following"]
            self.carry = carried(extras, result["terminated"] | result["truncated"])
            found.append((step, events))
        return found

    def advance(self, policy: Acts) -> tuple[Step, Events]:
        """Acts and takes one step in every environment, as `collect` does."""
        (found,) = self.collect(1, policy)
        return found

    def episodes(
        self, counts: Sequence[int], names: Mapping[int, str], seed: int, policy: Acts | None = None
    ) -> Iterator[tuple[Step, Events]]:
        """Starts new episodes, and yields steps of every environment until enough episodes have ended.

        counts: for each environment, the number of episodes that must end. An episode whose last step is masked does
        not count. names, seed: as in `start`, for all environments; without names, all are reset. policy: acts instead
        of the agent.
        """
        if names:
            self.start(names, seed)
        else:
            self.begin()
        remaining = torch.tensor(counts)
        waited = 0  # timesteps since one of these episodes has ended
        while (remaining > 0).any():
            waited += 1
            check_ends(waited, self.env.spec)
            step, events = self.advance(policy or self.agent)
            ended = ((step["terminated"] | step["truncated"]) & (step["weight"] > 0)).cpu()
            if (ended & (remaining > 0)).any():
                waited = 0
            remaining -= ended.long()
            yield step, events
        self.join()

    def act(self, policy: Acts) -> tuple[Tensor, Batch]:
        """Returns the policy's actions for the current observations, and the extras of add-ons and policy."""
        chosen = self.addons.act(policy, self.obs, self.carry, True)
        self.clock.lap("act")
        return chosen


def check_ends(steps: int, spec: Spec) -> None:
    """Raises RunError if a loop of whole episodes has waited too long for the end of an episode.

    steps: number of timesteps that it has waited.
    """
    limit = max(LONGEST_EPISODE, spec.time_limit or 0)
    if steps > limit:
        raise RunError(
            f"no episode has ended in {limit:,} timesteps, but this algorithm learns from whole episodes; "
            "env.max_episode_steps sets a time limit"
        )
