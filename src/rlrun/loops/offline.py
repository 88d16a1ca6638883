"""Learning from data sets: from nothing else, or first from them and then from them and the environment together.

An update without a transition counts as a step of the run, so that rows, evaluations and snapshots fall due.
"""

from pathlib import Path
from typing import Any

from rlrun.buffers.demo_lines import lines
from rlrun.buffers.demos import Demo, cut
from rlrun.buffers.mixed import Mixed
from rlrun.buffers.replay import Replay
from rlrun.buffers.rollout import index
from rlrun.config.schema import NonNegativeInt, PositiveInt, config
from rlrun.core.demonstrations import read
from rlrun.core.random import seed_for
from rlrun.errors import ConfigError
from rlrun.loops.offpolicy import OffPolicy
from rlrun.registry import register
from rlrun.types import Metrics, Step


class Recorded(OffPolicy):
    """Off-policy, with data sets to learn from."""

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        if not isinstance(self.buffer, Replay):
            raise ConfigError(
                f"algo.loop={self.registered} is not supported by algo={self.agent.registered}, which has no replay buffer"
            )

    def begin(self) -> None:
        super().begin()
        self.fill(self.buffer)

    def offline_tick(self) -> Metrics:
        """One update from what was recorded."""
        self.clock.start()
        self.steps += 1
        return self.update()

    def fill(self, buffer: Replay) -> None:
        """What was recorded, as many transitions at a time as there are environments. Normalisers see it too."""
        demos, count = self.read(), self.env.spec.num_envs
        steps = sum(len(demo["reward"]) for demo in demos)
        if steps > buffer.cfg.capacity:
            raise ConfigError(f"algo.buffer.capacity={buffer.cfg.capacity}: the data sets hold {steps} transitions")
        time = -(-steps // count)
        batch = lines(demos, count, time)
        for t in range(time):
            row = index(batch, t)
            step = Step(
                row["next_obs"], row["reward"], row["terminated"], row["truncated"], row["next_obs"], row["action"],
                row["weight"], {},
            )  # fmt: skip
            buffer.add(row["obs"], row["action"], step, {})
            self.addons.collect(step)

    def read(self) -> list[Demo]:
        """Every data set, of each the first `data_steps` transitions."""
        if not self.cfg.data:
            raise ConfigError("algo.loop.data: missing; a data set, as rlrun eval RUN record=demos-v0 writes it")
        if self.agent.stores:
            raise ConfigError(
                f"algo.loop={self.registered} is not supported by algo={self.agent.registered}, which learns from what "
                "it stored beside its actions: data sets hold no such thing"
            )
        places = [self.cfg.data] if isinstance(self.cfg.data, str) else self.cfg.data
        return [demo for place in places for demo in shortened(read(Path(place), self.env), self.cfg.data_steps)]


@register("loop", "offline")
class Offline(Recorded):
    """From data sets alone: the environment is there to evaluate in."""

    @config
    class Config:
        data: str | list[str] | None
        data_steps: PositiveInt | None
        batch_size: PositiveInt

    def tick(self) -> Metrics:
        return self.offline_tick()


@register("loop", "hybrid")
class Hybrid(Recorded):
    """From data sets alone at first; then the losses of both are added up, every so many updates."""

    @config
    class Config(OffPolicy.Config):
        data: str | list[str] | None
        data_steps: PositiveInt | None
        online_after: NonNegativeInt
        online_every: PositiveInt

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self.before = self.cfg.online_after
        kept: Replay = self.buffer
        if kept.targets.sequence_length is not None:
            raise ConfigError(
                f"algo.loop=hybrid is not supported by algo={self.agent.registered}, which learns from sequences"
            )
        seed = seed_for(self.seed, "recorded")
        self.buffer = Mixed(kept, type(kept)(kept.cfg, kept.spec, kept.targets, seed, self.env.device))

    def fill(self, buffer: Any) -> None:
        buffer.recorded.clear()
        super().fill(buffer.recorded)

    def tick(self) -> Metrics:
        return self.offline_tick() if self.updates < self.before else super().tick()

    def update(self) -> Metrics:
        online = self.updates - self.before
        self.buffer.online = online >= 0 and online % self.cfg.online_every == 0
        return super().update()


def shortened(demos: list[Demo], steps: int | None) -> list[Demo]:
    """The first so many transitions; the episode in which they end is cut."""
    kept: list[Demo] = []
    for demo in demos:
        left = len(demo["reward"]) if steps is None else steps - sum(len(one["reward"]) for one in kept)
        if left > 0:
            kept.append(cut(demo, min(left, len(demo["reward"]))))
    return kept
