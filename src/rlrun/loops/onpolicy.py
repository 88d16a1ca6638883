"""On-policy loop: collects a rollout with the current policy, learns from it in one update, and discards it."""

from typing import Any

import torch

from rlrun.buffers.rollout import Rollout, check_fits
from rlrun.config.schema import NonNegativeInt, PositiveInt, config
from rlrun.core.collector import Timestep
from rlrun.core.loop import Loop
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("loop", "onpolicy")
class OnPolicy(Loop):
    """Learns from rollouts of a fixed number of timesteps, [time, env, ...].

    With `lag` > 0, an update learns from the rollout that was collected `lag` ticks earlier.
    """

    @config
    class Config:
        rollout_steps: PositiveInt
        lag: NonNegativeInt

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        setting, steps = self.shortest()
        if self.cfg.lag:
            setting += f", algo.loop.lag={self.cfg.lag}"
        check_fits(setting, steps * (self.cfg.lag + 1), self.env.spec, self.env.device)
        self.waiting: list[Batch] = []  # rollouts that the agent has not learned from yet, oldest first

    def shortest(self) -> tuple[str, int]:
        """Returns the config setting that determines the length of a rollout, and its minimum number of timesteps."""
        return f"algo.loop.rollout_steps={self.cfg.rollout_steps}", self.cfg.rollout_steps

    def tick(self) -> Metrics:
        self.start_tick()
        ctx = self.context()  # progress before the rollout, so a schedule that ends at 0 is above 0 in the last update
        self.waiting.append(self.collect())
        if len(self.waiting) <= self.cfg.lag:
            return {}
        metrics = self.learn(self.waiting.pop(0), ctx)
        if self.cfg.lag:  # number of updates since the rollout was collected
            metrics["lag"] = torch.tensor(float(min(self.updates, len(self.waiting))))
        return self.count_update(metrics)

    def learn(self, rollout: Batch, ctx: Context) -> Metrics:
        self.batch = batch = self.addons.relabel(rollout)
        self.clock.lap("sample")
        metrics: Any = self.agent.update(batch, ctx)
        return metrics | self.addons.update(batch, ctx)

    def collect(self) -> Batch:
        """Returns one rollout [time, env, ...] of the current policy."""
        timesteps = [self.collector.advance() for _ in range(self.cfg.rollout_steps)]
        return self.rollout(timesteps)

    def rollout(self, timesteps: list[Timestep]) -> Batch:
        """Counts the timesteps, passes them to the add-ons, and returns them as one batch [time, env, ...]."""
        rollout = Rollout()
        for timestep in timesteps:
            step = self.receive(timestep)
            rollout.add(timestep.obs, timestep.action, step, timestep.extras, timestep.first)
        return rollout.batch()

    def get_extra_state(self) -> dict[str, Any]:
        return super().get_extra_state() | {"waiting": self.waiting}
