"""Offline-to-online loop: first learns from data sets alone, then from data sets and collected transitions together."""

from typing import Any

from rlrun.buffers.mixed import Mixed
from rlrun.buffers.replay import Replay
from rlrun.core.random import seed_for
from rlrun.datasets.demonstrations import DataEnv
from rlrun.errors import ConfigError
from rlrun.loops.offline import Offline
from rlrun.loops.offpolicy import OffPolicy
from rlrun.settings import NonNegativeInt, PositiveInt, config, register
from rlrun.types import Metrics


@register("loop", "hybrid")
class Hybrid(Offline, OffPolicy):
    """Trains any off-policy agent that learns from single transitions.

    The first `online_after` updates learn from data sets alone, and each counts as a step of the run. After that,
    transitions are collected and count as steps, and every `online_every`-th update also learns from collected ones.
    """

    phases = ("rollout", "replay", "pretrain")

    @config
    class Config(OffPolicy.Config):
        data: str | list[str] | None
        data_steps: PositiveInt | None
        data_env: DataEnv
        online_after: NonNegativeInt
        online_every: PositiveInt

    def __init__(self, *args: Any):
        super().__init__(*args)
        collected = self.buffer
        reading = collected.reading
        if reading.sequence_length is not None or reading.num_next_steps:
            learner = f"algo={self.agent.registered}"
            if any(other.num_next_steps for other in self.learners if other is not self.agent):
                learner = "algo.representation"
            raise ConfigError(f"algo.loop=hybrid is not supported by {learner}, which learns from sequences")
        self.offline_updates = self.cfg.online_after
        seed = seed_for(self.seed, "recorded")
        recorded = type(collected)(collected.cfg, collected.spec, reading, seed, self.device)
        self.buffer = Mixed(collected, recorded)

    @property
    def recorded(self) -> Replay:
        return self.buffer.recorded

    @property
    def is_offline(self) -> bool:
        """Whether the next update learns from data sets alone."""
        return self.updates < self.offline_updates

    @property
    def phase(self) -> str:
        return "pretrain" if self.is_offline else "replay"

    def tick(self) -> Metrics:
        if self.is_offline:
            return super().tick()
        return OffPolicy.tick(self)

    def learn_from_replay(self) -> Metrics:
        online_updates = self.updates - self.offline_updates
        self.buffer.online = online_updates >= 0 and online_updates % self.cfg.online_every == 0
        return super().learn_from_replay()
