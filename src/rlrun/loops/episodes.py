"""On-policy loop whose rollouts are whole episodes, with a minimum number of steps, of episodes, or of both.

The episodes of each rollout are numbered from 0 in the order in which they start. Run seed, rollout index and episode
number determine the environment seed and the action noise. A rollout keeps the episodes with the lowest numbers. It
therefore does not depend on num_envs or on which environment finishes first, and is not biased towards short episodes.
Later episodes are discarded, but step counts and normaliser statistics include them.
"""

from collections.abc import Iterable
from typing import Any

from rlrun.buffers.rollout import Rollout
from rlrun.core.collector import check_ends
from rlrun.errors import ConfigError
from rlrun.loops.episode_spans import EpisodeSpan, by_episode
from rlrun.loops.onpolicy import OnPolicy
from rlrun.settings import NonNegativeInt, PositiveInt, Scheduled, Size, config, register
from rlrun.types import Batch


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
        return f"algo.loop.min_steps={steps}", steps // self.spec.num_envs

    def shorten_rollouts(self, transitions: int) -> float:
        return 1.0  # episodes are collected to their ends

    def collect_rollout(self) -> Batch:
        """Collects a rollout [time, episode, ...]; time is the length of its longest episode. Padding has weight 0."""
        rollout = Rollout(self.spec)
        time = last_end = 0
        episodes: list[EpisodeSpan] = []
        selected: list[EpisodeSpan] = []
        self.start_episodes(range(self.spec.num_envs), episodes, 0)
        while not selected:
            running = [episode for episode in episodes if not episode.done]
            (step,) = self.collect()
            rollout.add(step)
            time += 1
            ended = (step["terminated"] | step["truncated"]).tolist()
            for episode in running:
                episode.end = time
                episode.done = ended[episode.slot]
            free = [episode.slot for episode in running if episode.done]
            check_ends(time - last_end, self.spec)
            if free:
                last_end = time
                selected = self.complete(episodes)
                if not self.enough(episodes):
                    self.start_episodes(free, episodes, time)
        self.join()
        self.set_parameters()
        return by_episode(rollout.batch(), selected)

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

    def start_episodes(self, slots: Iterable[int], episodes: list[EpisodeSpan], begin: int) -> None:
        """Starts a new episode in each of the environments `slots`, and appends the new episodes to `episodes`.

        begin: timestep of the rollout at which the episodes start.
        """
        names: dict[int, str] = {}
        for slot in slots:
            names[slot] = f"{self.updates + len(self.waiting)}.{len(episodes)}"
            episodes.append(EpisodeSpan(slot, begin, begin))
        self.start(names)
