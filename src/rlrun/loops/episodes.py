"""On-policy loop whose rollouts are whole episodes, with a minimum number of steps, of episodes, or of both.

The episodes of each rollout are numbered from 0 in the order in which they start. Run seed, rollout index and episode
number determine the environment seed and the action noise. A rollout keeps the episodes with the lowest numbers. It
therefore does not depend on num_envs or on which environment finishes first, and is not biased towards short episodes.
Later episodes are discarded, but step counts and normaliser statistics include them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from rlrun.buffers.rollout import Rollout
from rlrun.core.collector import check_ends
from rlrun.core.random import Stream, seed_for
from rlrun.errors import ConfigError
from rlrun.loops.onpolicy import OnPolicy
from rlrun.nested import index
from rlrun.settings import NonNegativeInt, PositiveInt, Scheduled, Size, config, register
from rlrun.types import Batch


@dataclass
class EpisodeSpan:
    """Locates an episode among the collected timesteps: environment `slot`, timesteps begin to end (exclusive)."""

    slot: int
    begin: int
    end: int
    done: bool = False


@register("loop", "episodes")
class Episodes(OnPolicy):
    """Learns from rollouts of whole episodes, [time, episode, ...]."""

    @config
    class Config:
        min_steps: Scheduled[PositiveInt] | None
        min_rollouts: Scheduled[Size] | None
        lag: NonNegativeInt

    def __init__(self, *args: Any):
        super().__init__(*args)
        if self.cfg.min_steps is None and self.cfg.min_rollouts is None:
            raise ConfigError("algo.loop: set at least one of min_steps and min_rollouts")

    def shortest_rollout(self) -> tuple[str, int]:
        steps = int(self.cfg.min_steps or 0)
        return f"algo.loop.min_steps={steps}", steps // self.env.spec.num_envs

    def shorten_rollouts(self, transitions: int) -> float:
        return 1.0  # episodes are collected to their ends

    def collect(self) -> Batch:
        """Collects a rollout [time, episode, ...]; time is the length of its longest episode. Padding has weight 0."""
        rollout = Rollout(self.env.spec)
        time = last_end = 0
        episodes: list[EpisodeSpan] = []
        selected: list[EpisodeSpan] = []
        self.start(range(self.env.spec.num_envs), episodes, 0)
        while not selected:
            running = [episode for episode in episodes if not episode.done]
            self.advance(rollout)
            time += 1
            ended = self.carry["first"].tolist()  # where an episode has ended, the next observation is a first one
            for episode in running:
                episode.end = time
                episode.done = ended[episode.slot]
            free = [episode.slot for episode in running if episode.done]
            check_ends(time - last_end, self.env.spec)
            if free:
                last_end = time
                selected = self.complete(episodes)
                if not self.enough(episodes):
                    self.start(free, episodes, time)
        for stream in self.streams():
            stream.join()
        return by_episode(self.finish_rollout(rollout), selected)

    def enough(self, episodes: list[EpisodeSpan]) -> bool:
        """Returns whether these episodes reach both minimums."""
        steps = sum(episode.end - episode.begin for episode in episodes)
        return steps >= (self.cfg.min_steps or 0) and len(episodes) >= (self.cfg.min_rollouts or 0)

    def complete(self, episodes: list[EpisodeSpan]) -> list[EpisodeSpan]:
        """Returns the first of these episodes, as few as suffice for a rollout; [] as long as one of them runs."""
        for count, episode in enumerate(episodes, 1):
            if not episode.done:
                break
            if self.enough(episodes[:count]):
                return episodes[:count]
        return []

    def start(self, slots: Iterable[int], episodes: list[EpisodeSpan], begin: int) -> None:
        """Starts a new episode in each of the environments `slots`, and appends the new episodes to `episodes`.

        begin: timestep of the rollout at which the episodes start.
        """
        rollout_index = self.updates + len(self.waiting)
        seeds: dict[int, int] = {}
        for slot in slots:
            name = f"{rollout_index}.{len(episodes)}"
            seeds[slot] = seed_for(self.seed, f"episode {name}") >> 32  # some environments accept only 31 bits
            for stream in self.streams():
                stream.split(slot, name)
            episodes.append(EpisodeSpan(slot, begin, begin))
        self.obs = self.env.start(seeds)
        first = self.carry["first"]
        self.carry["first"] = first.index_fill(0, torch.tensor(list(seeds), device=first.device), True)

    def streams(self) -> list[Stream]:
        """Returns the random streams of the agent and the add-ons."""
        return [module for module in (*self.agent.modules(), *self.addons.modules()) if isinstance(module, Stream)]


def by_episode(batch: Batch, episodes: list[EpisodeSpan]) -> Batch:
    """Regroups timesteps [time, env, ...] as [time, episode, ...]; padding repeats the last timestep of an episode."""
    begin, end, slot = torch.tensor([[episode.begin, episode.end, episode.slot] for episode in episodes]).T
    time = torch.arange(int((end - begin).max())).unsqueeze(-1) + begin
    result: Batch = index(batch, (time.clamp(max=end - 1), slot))
    return result | {"weight": result["weight"] * (time < end).to(result["weight"])}
