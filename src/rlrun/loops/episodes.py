"""On-policy with whole episodes: at least so many steps, at least so many episodes, or both.

Every episode has a number, and a seed for its environment and for the noise of its actions that follows from the number
alone. Those with the lowest numbers are learned from, so what a rollout holds depends neither on how many environments
share the work nor on which of them is done first; a longer episode is not less likely to be in it.
"""

from typing import Any

import torch

from rlrun.buffers.rollout import Rollout, index
from rlrun.config.schema import NonNegativeInt, PositiveInt, config
from rlrun.core.random import Stream, seed_for
from rlrun.errors import ConfigError
from rlrun.loops.onpolicy import OnPolicy
from rlrun.registry import register
from rlrun.types import Batch


class Episode:
    """Where one is found in the rows that were collected: an environment, and rows from begin to end."""

    def __init__(self, slot: int, begin: int):
        self.slot, self.begin, self.end = slot, begin, begin
        self.done = False


@register("loop", "episodes")
class Episodes(OnPolicy):
    @config
    class Config:
        min_steps: PositiveInt | None
        min_rollouts: PositiveInt | None
        lag: NonNegativeInt

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        if self.cfg.min_steps is None and self.cfg.min_rollouts is None:
            raise ConfigError("algo.loop: one of min_steps and min_rollouts must be given")

    def collect(self) -> Batch:
        """[time, episode, ...], as long as the longest; the rest of a shorter one has weight 0."""
        rollout, episodes = Rollout(), list[Episode]()
        playing = self.start(range(self.env.spec.num_envs), episodes)
        while not self.enough(taken := self.finished(episodes)):
            self.act(rollout)
            ended = set(self.carry["first"].nonzero().flatten().tolist())
            for episode in playing:
                episode.end += 1
                episode.done = episode.slot in ended
            free = [episode.slot for episode in playing if episode.done]
            playing = [episode for episode in playing if not episode.done]
            if free and not self.enough(episodes):
                playing += self.start(free, episodes)
        for stream in self.streams():
            stream.join()
        return lines(rollout.batch(), taken)

    def enough(self, episodes: list[Episode]) -> bool:
        steps = sum(episode.end - episode.begin for episode in episodes)
        return steps >= (self.cfg.min_steps or 0) and len(episodes) >= (self.cfg.min_rollouts or 0)

    def finished(self, episodes: list[Episode]) -> list[Episode]:
        """The first ones in the order in which they were begun, as many as are enough, or all up to one under way."""
        taken: list[Episode] = []
        for episode in episodes:
            if self.enough(taken) or not episode.done:
                break
            taken.append(episode)
        return taken

    def start(self, slots: Any, episodes: list[Episode]) -> list[Episode]:
        """The next episodes, one in each of these environments."""
        number = self.updates + len(self.waiting)  # of the rollout
        seeds: dict[int, int] = {}
        now = max((episode.end for episode in episodes), default=0)
        new = [Episode(slot, now) for slot in slots]
        for i, episode in enumerate(new, len(episodes)):
            seeds[episode.slot] = seed_for(self.seed, f"episode {number}.{i}") >> 32  # some simulators take 31 bits
            for stream in self.streams():
                stream.split(episode.slot, f"{number}.{i}")
        self.obs = self.env.start(seeds)
        self.carry["first"] = self.carry["first"].index_fill(0, torch.tensor([*seeds], device=self.env.device), True)
        episodes += new
        return new

    def streams(self) -> list[Stream]:
        return [module for module in self.agent.modules() if isinstance(module, Stream)]


def lines(batch: Batch, episodes: list[Episode]) -> Batch:
    """Rows [time, env, ...] as episodes [time, episode, ...]; beyond its end an episode repeats its last row."""
    begin, end, slot = torch.tensor([[episode.begin, episode.end, episode.slot] for episode in episodes]).T
    time = torch.arange(int((end - begin).max())).unsqueeze(-1) + begin
    result: Batch = index(batch, (time.clamp(max=end - 1), slot))
    return result | {"weight": result["weight"] * (time < end).to(result["weight"])}
