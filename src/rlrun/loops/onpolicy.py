"""On-policy: collect a rollout with the current policy, learn from it once, forget it."""

from typing import Any

from rlrun.buffers.rollout import Rollout
from rlrun.config.schema import PositiveInt, config
from rlrun.core.loop import Loop
from rlrun.registry import register
from rlrun.types import Metrics


@register("loop", "onpolicy")
class OnPolicy(Loop):
    @config
    class Config:
        rollout_steps: PositiveInt

    def tick(self) -> Metrics:
        self.clock.start()
        ctx = self.context()  # schedules stand where the rollout began, so that the last one still learns
        rollout = Rollout()
        for _ in range(self.cfg.rollout_steps):
            obs, first = self.obs, self.carry["first"]
            action, extras = self.agent.act(self.addons.observe(obs, self.carry, True), self.carry, explore=True)
            self.clock.lap("act")
            step = self.advance(action, extras)
            self.clock.lap("env")
            rollout.add(obs, action, step, extras, first)
        self.batch = batch = self.addons.relabel(rollout.batch())
        self.clock.lap("sample")
        metrics: Any = self.agent.update(batch, ctx)
        metrics |= self.addons.update(batch, ctx)
        self.updates += 1
        self.clock.lap("update")
        return metrics
