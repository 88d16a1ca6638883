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
class Hybrid(Offline):
    """Trains any off-policy agent that learns from single transitions.

    The first `online_after` updates learn from data sets alone, and each counts as a step of the run. After that,
    transitions are collected and count as steps, and every `online_every`-th update also learns from collected ones.
    """

    @config
    class Config(OffPolicy.Config):
        data: str | list[str] | None
        data_steps: PositiveInt | None
        data_env: DataEnv
        online_after: NonNegativeInt
        online_every: PositiveInt

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        own = self.buffer
        if own.reading.sequence_length is not None or own.reading.num_next_steps:
            learner = f"algo={self.agent.registered}"
            if self.addons.num_next_steps:
                learner = "algo.representation"
            raise ConfigError(f"algo.loop=hybrid is not supported by {learner}, which learns from sequences")
        self.before = self.cfg.online_after
        recorded = type(own)(own.cfg, own.spec, own.reading, seed_for(self.seed, "recorded"), self.env.device)
        self.buffer = Mixed(own, recorded)

    @property
    def recorded(self) -> Replay:
        return self.buffer.recorded

    def tick(self) -> Metrics:
        if self.updates < self.before:
            return super().tick()
        return OffPolicy.tick(self)

    def update(self) -> Metrics:
        online = self.updates - self.before
        self.buffer.online = online >= 0 and online % self.cfg.online_every == 0
        return super().update()
