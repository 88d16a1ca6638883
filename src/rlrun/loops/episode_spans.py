"""Where the episodes of a rollout lie among the timesteps that were collected."""

from dataclasses import dataclass

import torch

from rlrun.nested import index
from rlrun.types import Batch


@dataclass
class EpisodeSpan:
    """Locates an episode among the collected timesteps: environment `slot`, timesteps begin to end (exclusive)."""

    slot: int
    begin: int
    end: int
    done: bool = False


def by_episode(batch: Batch, episodes: list[EpisodeSpan]) -> Batch:
    """Regroups timesteps [time, env, ...] as [time, episode, ...]; padding repeats the last timestep of an episode."""
    begin, end, slot = torch.tensor([[episode.begin, episode.end, episode.slot] for episode in episodes]).T
    time = torch.arange(int((end - begin).max())).unsqueeze(-1) + begin
    result: Batch = index(batch, (time.clamp(max=end - 1), slot))
    return result | {"weight": result["weight"] * (time < end).to(result["weight"])}
