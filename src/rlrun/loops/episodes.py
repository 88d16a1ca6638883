"""On-policy loop whose rollouts are whole episodes, with a minimum number of steps, of episodes, or of both.

What a rollout holds does not depend on the number of environments (`loops/whole_episodes.py`).
"""

from collections.abc import Callable
from typing import Any, Literal

from rlrun.buffers.dtypes import FloatType
from rlrun.buffers.rollout import Rollout
from rlrun.errors import ConfigError
from rlrun.loops.episode_spans import by_episode
from rlrun.loops.onpolicy import OnPolicy
from rlrun.loops.whole_episodes import episodes_in_rounds, whole_episodes
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
        shards: PositiveInt | None
        dtypes: dict[Literal["obs"], FloatType]

    def __init__(self, *args: Any):
        super().__init__(*args)
        if self.cfg.min_steps is None and self.cfg.min_rollouts is None:
            raise ConfigError("algo.loop: set at least one of min_steps and min_rollouts")

    def shortest_rollout(self) -> tuple[str, int]:
        steps = int(self.cfg.min_steps or 0)
        return f"algo.loop.min_steps={steps}", steps // self.spec.num_envs

    def shorten_rollouts(self, transitions: int) -> float:
        return 1.0  # episodes are collected to their ends

    def collect_rollout(self, meanwhile: Callable[[], object] | None = None) -> Batch:
        """Collects a rollout [time, episode, ...]; time is the length of its longest episode. Padding has weight 0.

        meanwhile: is not called; what it would do follows.
        """
        rollout = Rollout(self.spec, self.cfg.dtypes)
        name = str(self.updates + len(self.waiting))
        if self.cfg.shards is None:
            episodes = whole_episodes(self, rollout, name, self.enough)
        else:
            episodes = episodes_in_rounds(self, rollout, name, self.enough, self.cfg.shards)
        self.set_parameters()
        return by_episode(rollout.batch(), episodes)

    def enough(self, steps: int, episodes: int) -> bool:
        """Returns whether so many transitions in so many episodes reach both minimums."""
        return steps >= (self.cfg.min_steps or 0) and episodes >= (self.cfg.min_rollouts or 0)
