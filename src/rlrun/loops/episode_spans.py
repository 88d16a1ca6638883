"""Where the episodes of a rollout lie among the timesteps that were collected."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from rlrun.indexed import dense
from rlrun.nested import index
from rlrun.types import Batch


@dataclass
class EpisodeSpan:
    """Locates an episode among the collected timesteps: environment `slot`, timesteps begin to end (exclusive)."""

    slot: int
    begin: int
    end: int
    done: bool = False


def one_by_one(batch: Batch, episodes: list[EpisodeSpan]) -> Iterator[Batch]:
    """Yields every timestep of these episodes in turn, [1, ...], from timesteps [time, env, ...]."""
    for episode in episodes:
        rows = dense(index(batch, (slice(episode.begin, episode.end), episode.slot)))
        for time in range(episode.end - episode.begin):
            yield index(rows, slice(time, time + 1))


def by_episode(batch: Batch, episodes: list[EpisodeSpan]) -> Batch:
    """Regroups timesteps [time, env, ...] as [time, episode, ...]; padding repeats the last timestep of an episode."""
    begin, end, slot = torch.tensor([[episode.begin, episode.end, episode.slot] for episode in episodes]).T
    time = torch.arange(int((end - begin).max())).unsqueeze(-1) + begin
    result: Batch = index(batch, (time.clamp(max=end - 1), slot))
    return result | {"weight": result["weight"] * (time < end).to(result["weight"])}
