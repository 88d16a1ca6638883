"""On-policy loop: collects a rollout with the current policy, learns from it in one update, and discards it."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch

from rlrun.buffers.dtypes import FloatType
from rlrun.buffers.rollout import Rollout, check_fits, packed, unpacked
from rlrun.core.agent import Agent
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.loops.adaptation import MetaAgent
from rlrun.settings import NonNegativeInt, PositiveInt, config, register
from rlrun.types import Batch, Context, Metrics

# Timesteps that are collected before the add-ons process them. One at a time, they take up to a tenth longer, because
# environments and add-ons drive each other's code out of the caches of the CPU.
BLOCK = 16


@register("loop", "onpolicy")
class OnPolicy(Loop):
    """Learns from rollouts of a fixed number of timesteps, [time, env, ...].

    With `lag` > 0, an update learns from the rollout that was collected `lag` ticks earlier. The agent learns beside
    the collecting: all steps are taken with the weights and statistics before its update, and counted after it.
    """

    @config
    class Config:
        rollout_steps: PositiveInt
        lag: NonNegativeInt
        shards: PositiveInt | None
        dtypes: dict[Literal["obs"], FloatType]

    def __init__(self, *args: Any):
        super().__init__(*args)
        if type(self.agent).ask is not Agent.ask or isinstance(self.agent, MetaAgent):
            why = "which learns from parameter vectors or tasks, not from rollouts"
            raise ConfigError(f"algo.loop={self.registered} is not supported by algo={self.agent.registered}, {why}")
        setting, steps = self.before_update()
        kept = self.agent.num_kept * self.shortest_rollout()[1]
        if kept:
            setting += f", algo.critic_update.interval={self.agent.num_kept}"
        check_fits(setting, steps + kept, self.spec, self.cfg.dtypes, self.device)
        self.waiting: list[Batch] = []  # rollouts that the agent has not learned from yet, oldest first

    def shortest_rollout(self) -> tuple[str, int]:
        """Returns the config setting that determines the length of a rollout, and its minimum number of timesteps."""
        return f"algo.loop.rollout_steps={self.cfg.rollout_steps}", self.cfg.rollout_steps

    def before_update(self) -> tuple[str, int]:
        """Returns the config settings that determine when the first update is made, and the timesteps before it."""
        setting, steps = self.shortest_rollout()
        if self.cfg.lag:
            setting += f", algo.loop.lag={self.cfg.lag}"
        return setting, steps * (self.cfg.lag + 1)

    def first_update(self) -> tuple[str, int]:
        setting, steps = self.before_update()
        return setting, steps * self.spec.num_envs

    def shorten_rollouts(self, transitions: int) -> float:
        own = self.cfg.rollout_steps
        steps = max(1, min(own, transitions // self.spec.num_envs))
        self.cfg = dataclasses.replace(self.cfg, rollout_steps=steps)
        return float(steps / own)

    def tick(self) -> Metrics:
        self.start_tick()
        ctx = self.context()  # progress before the rollout, so a schedule that ends at 0 is above 0 in the last update
        lag = self.cfg.lag
        if len(self.waiting) < lag:
            self.waiting.append(self.collect_rollout())
            return {}
        metrics: Metrics = {}
        if lag:
            update = self.learn_from_rollout(self.waiting[0], ctx)
            self.waiting.append(self.collect_rollout(lambda: metrics.update(next(update))))
            self.waiting.pop(0)
        else:
            update = self.learn_from_rollout(self.collect_rollout(), ctx)
        for part in update:
            metrics |= part
        if lag:
            # the number of updates since the rollout was collected; there were fewer when the first ones were
            metrics["loss/lag"] = torch.tensor(float(min(self.updates, lag)))
        return self.count_update(metrics)

    def learn_from_rollout(self, rollout: Batch, ctx: Context) -> Iterator[Metrics]:
        """Updates the agent and yields its metrics, then updates all else that learns and yields the metrics of these.

        With `lag`, the agent is updated beside the collecting, and all else after it.
        """
        self.begin_update(ctx)
        relabelled = self.relabel(rollout)
        self.clock.lap("sample")
        metrics, _ = self.update_agent(relabelled, ctx)
        self.clock.lap("update")
        yield metrics
        yield self.update_addons(ctx)

    def collect_rollout(self, meanwhile: Callable[[], object] | None = None) -> Batch:
        """Returns one rollout [time, env, ...] of the current policy. Environment parameters change only after it.

        meanwhile: is called once, as in `collect`; for loops with `lag`, which take all steps before they count one.
        """
        rollout = Rollout(self.spec, self.cfg.dtypes)
        longest = BLOCK
        if self.cfg.lag or self.cfg.shards is not None:  # one request to the shards, which do not wait in between
            longest = self.cfg.rollout_steps
        remaining = self.cfg.rollout_steps
        while remaining:
            block = min(longest, remaining)
            for step in self.collect(block, meanwhile=meanwhile):
                rollout.add(step)
            remaining -= block
        self.set_parameters()
        return rollout.batch()

    def saved(self) -> Iterator[tuple[object, Sequence[str]]]:
        yield from super().saved()
        yield self, ("waiting",)  # here, because digests of snapshots depend on the order

    def get_extra_state(self) -> dict[str, Any]:
        return super().get_extra_state() | {"waiting": [packed(rollout) for rollout in self.waiting]}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self.waiting = [unpacked(rollout) for rollout in self.waiting]
