"""On-policy: collect a rollout with the current policy, learn from it once, forget it."""

from typing import Any

import torch

from rlrun.buffers.rollout import Rollout, check_fits
from rlrun.config.schema import NonNegativeInt, PositiveInt, config
from rlrun.core.loop import Loop
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("loop", "onpolicy")
class OnPolicy(Loop):
    @config
    class Config:
        rollout_steps: PositiveInt
        lag: NonNegativeInt

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        setting, steps = self.shortest()
        kept = f", algo.loop.lag={self.cfg.lag}" if self.cfg.lag else ""
        check_fits(setting + kept, steps * (self.cfg.lag + 1), self.env.spec, self.env.device)
        self.waiting: list[Batch] = []  # rollouts that were collected and not yet learned from, oldest first

    def shortest(self) -> tuple[str, int]:
        """The setting behind the length of a rollout, and the vector steps that it has at least."""
        return f"algo.loop.rollout_steps={self.cfg.rollout_steps}", self.cfg.rollout_steps

    def tick(self) -> Metrics:
        self.clock.start()
        ctx = self.context()  # schedules stand where the rollout began, so that the last one still learns
        self.waiting.append(self.collect())
        if len(self.waiting) <= self.cfg.lag:
            return {}
        metrics = self.learn(self.waiting.pop(0), ctx)
        if self.cfg.lag:  # updates since the policy that collected this
            metrics["lag"] = torch.tensor(float(min(self.updates, len(self.waiting))))
        self.updates += 1
        self.clock.lap("update")
        return metrics

    def learn(self, rollout: Batch, ctx: Context) -> Metrics:
        self.batch = batch = self.addons.relabel(rollout)
        self.clock.lap("sample")
        metrics: Any = self.agent.update(batch, ctx)
        return metrics | self.addons.update(batch, ctx)

    def collect(self) -> Batch:
        """One rollout [time, env, ...] of the agent as it is."""
        rollout = Rollout()
        for _ in range(self.cfg.rollout_steps):
            self.act(rollout)
        return rollout.batch()

    def act(self, rollout: Rollout) -> None:
        """One vector step, into the rollout."""
        obs, carry = self.obs, self.carry
        action, extras = self.addons.act(self.agent, obs, carry, True)
        self.clock.lap("act")
        step = self.advance(action, extras)
        self.clock.lap("env")
        rollout.add(obs, action, step, extras, carry["first"])

    def reset(self, seed: int | None = None) -> None:
        super().reset(seed)
        self.waiting = []

    def get_extra_state(self) -> dict[str, Any]:
        return super().get_extra_state() | {"waiting": self.waiting}
