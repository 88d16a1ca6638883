"""On-policy with whole episodes: at least so many steps, at least so many episodes, or both.

Every episode has a number, and a seed for its environment and for the noise of its actions that follows from the number
alone. Those with the lowest numbers are learned from, so what a rollout holds depends neither on how many environments
share the work nor on which of them is done first; a longer episode is not less likely to be in it. What is counted as
it happens, steps of the run and statistics of normalisers, counts the episodes left out too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from rlrun.config.schema import NonNegativeInt, PositiveInt, Size, config
from rlrun.core.collector import Timestep
from rlrun.core.random import Stream, seed_for
from rlrun.errors import ConfigError
from rlrun.loops.onpolicy import OnPolicy
from rlrun.nested import index
from rlrun.registry import register
from rlrun.types import Batch


@dataclass
class Episode:
    """Where one is found among the collected rows: an environment, and rows from begin to end."""

    slot: int
    begin: int
    end: int
    done: bool = False


@register("loop", "episodes")
class Episodes(OnPolicy):
    """Rollouts of whole episodes, [time, episode, ...]."""

    @config
    class Config:
        min_steps: PositiveInt | None
        min_rollouts: Size | None
        lag: NonNegativeInt

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        if self.cfg.min_steps is None and self.cfg.min_rollouts is None:
            raise ConfigError("algo.loop: one of min_steps and min_rollouts must be given")

    def shortest(self) -> tuple[str, int]:
        return f"algo.loop.min_steps={self.cfg.min_steps}", (self.cfg.min_steps or 0) // self.env.spec.num_envs

    def collect(self) -> Batch:
        """[time, episode, ...], as long as the longest episode; the rest of a shorter one has weight 0."""
        timesteps: list[Timestep] = []
        episodes: list[Episode] = []
        taken: list[Episode] = []
        self.start(range(self.env.spec.num_envs), episodes, 0)
        while not taken:
            playing = [episode for episode in episodes if not episode.done]
            timesteps.append(self.collector.advance())
            ended = self.carry["first"].tolist()
            for episode in playing:
                episode.end = len(timesteps)
                episode.done = ended[episode.slot]
            free = [episode.slot for episode in playing if episode.done]
            if free:
                taken = self.complete(episodes)
                if not self.enough(episodes):
                    self.start(free, episodes, len(timesteps))
        for stream in self.streams():
            stream.join()
        return lines(self.rollout(timesteps), taken)

    def enough(self, episodes: list[Episode]) -> bool:
        steps = sum(episode.end - episode.begin for episode in episodes)
        return steps >= (self.cfg.min_steps or 0) and len(episodes) >= (self.cfg.min_rollouts or 0)

    def complete(self, episodes: list[Episode]) -> list[Episode]:
        """The first episodes, as few as are enough; none while one of them is under way."""
        for count, episode in enumerate(episodes, 1):
            if not episode.done:
                break
            if self.enough(episodes[:count]):
                return episodes[:count]
        return []

    def start(self, slots: Iterable[int], episodes: list[Episode], begin: int) -> None:
        """The next episodes, one in each of these environments."""
        rollout = self.updates + len(self.waiting)  # its number
        seeds: dict[int, int] = {}
        for slot in slots:
            name = f"{rollout}.{len(episodes)}"
            seeds[slot] = seed_for(self.seed, f"episode {name}") >> 32  # some simulators take 31 bits
            for stream in self.streams():
                stream.split(slot, name)
            episodes.append(Episode(slot, begin, begin))
        self.obs = self.env.start(seeds)
        first = self.carry["first"]
        self.carry["first"] = first.index_fill(0, torch.tensor(list(seeds), device=first.device), True)

    def streams(self) -> list[Stream]:
        return [module for module in (*self.agent.modules(), *self.addons.modules()) if isinstance(module, Stream)]


def lines(batch: Batch, episodes: list[Episode]) -> Batch:
    """Rows [time, env, ...] as episodes [time, episode, ...]; beyond its end an episode repeats its last row."""
    begin, end, slot = torch.tensor([[episode.begin, episode.end, episode.slot] for episode in episodes]).T
    time = torch.arange(int((end - begin).max())).unsqueeze(-1) + begin
    result: Batch = index(batch, (time.clamp(max=end - 1), slot))
    return result | {"weight": result["weight"] * (time < end).to(result["weight"])}
