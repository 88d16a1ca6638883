"""Adds an intrinsic reward to the batch: as a separate reward column, or summed with the environment's reward."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.buffers.minibatches import minibatches
from rlrun.core.addon import Addon, RewardModule
from rlrun.errors import ConfigError
from rlrun.functional.losses import batch_mean
from rlrun.functional.returns import reverse_recurrence
from rlrun.tensors import flat
from rlrun.types import Batch, Bonus, Context, Metrics, Spec, Step


class SeparateBonus(Addon):
    """Adds the intrinsic reward as a column with separate returns and advantages, for on-policy agents.

    The reward is computed once for every rollout (arXiv 1810.12894, sec. 2.3).
    """

    def __init__(self, model: Intrinsic):
        super().__init__()
        if isinstance(model.cfg.coef, Tensor):
            raise ConfigError(
                "algo.schedule.intrinsic.coef: needs algo.intrinsic.separate=false; "
                "the coefficient of a bonus with separate returns is constant"
            )
        self.model = model
        self.reads = model.reads

    def spec_after(self, spec: Spec) -> Spec:
        cfg = self.model.cfg
        bonus = Bonus(cfg.gamma, cfg.episodic, cfg.coef)
        return replace(spec, reward_dim=spec.reward_dim + 1, bonuses=(*spec.bonuses, bonus))

    @torch.no_grad()
    def relabel(self, batch: Batch) -> Batch:
        """Adds the reward column. Must be called once per rollout, because it updates the statistics."""
        model = self.model
        weight = batch["weight"]
        rows = intrinsic_rows(batch, weight, model.reads)
        model.observe(rows)
        model.publish()
        explored: Any = model.preprocess(rows)
        raw_reward = model.raw_reward(flat(explored)).view_as(weight) * weight
        gamma = torch.full_like(raw_reward, model.cfg.gamma)
        sums = reverse_recurrence(raw_reward, gamma)
        model.statistics.add(sums[weight > 0])
        model.publish()
        reward = batch["reward"].view(*weight.shape, -1)
        column = model.scale(raw_reward).unsqueeze(-1)
        columns = torch.cat([reward, column], -1)
        return batch | {"reward": columns, "explored": explored}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        bonus = batch["reward"][..., -1]
        metrics = {"loss/bonus": batch_mean(bonus)}
        explored: Any = batch["explored"]
        return metrics | fit_rollout(self.model, explored)


class SharedBonus(RewardModule):
    """Computes an intrinsic reward that `RewardSum` adds to the environment's reward, for any agent.

    Every step is stored with its raw intrinsic reward. An update scales stored rewards with the current statistics and
    the current coefficient.
    """

    coef: Tensor

    def __init__(self, model: Intrinsic, num_envs: int):
        super().__init__()
        self.model = model
        self.reads = model.reads
        self.register_buffer("coef", torch.as_tensor(model.cfg.coef))
        self.sums = torch.zeros(num_envs)  # discounted sums of all past raw rewards

    @torch.no_grad()
    def reward(self, step: Step) -> Tensor:
        model = self.model
        weight = step["weight"]
        rows = intrinsic_rows(step, weight, model.reads)
        model.observe(rows)
        explored: Any = model.preprocess(rows)
        raw_reward = model.raw_reward(explored) * weight
        self.sums.mul_(model.cfg.gamma)
        self.sums.add_(raw_reward)
        model.statistics.add(self.sums[weight > 0])
        return raw_reward

    def scale(self, reward: Tensor) -> Tensor:
        return self.coef * self.model.scale(reward)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        self.model.publish()
        weight: Tensor = batch["weight"]
        if "mask" in batch:
            weight = batch["mask"]
        rows = intrinsic_rows(batch, weight, self.model.reads)
        explored = self.model.preprocess(rows)
        is_rollout = "index" not in batch
        if is_rollout:
            return fit_rollout(self.model, explored)
        is_sequence = weight.dim() == 2
        if is_sequence:
            explored = flat(explored)
        return self.model.fit(explored)

    def get_extra_state(self) -> Tensor:
        return self.sums

    def set_extra_state(self, state: Tensor) -> None:
        self.sums = state.to(self.sums.device, copy=True)  # a copy, because it is changed in place


def intrinsic_rows(batch: Batch, weight: Tensor, reads: Sequence[str]) -> Batch:
    """Returns the entries of a batch that a model of intrinsic rewards reads. reads: names of reports."""
    return {name: batch[name] for name in reads} | {
        "obs": batch["obs"],
        "action": batch["action"],
        "next_obs": batch["next_obs"],
        "weight": weight,
    }


def fit_rollout(model: Intrinsic, explored: Batch) -> Metrics:
    """Fits the model to a preprocessed rollout [time, env, ...], in minibatches."""
    cfg = model.cfg
    metrics: Metrics = {}
    for epoch in minibatches(explored, cfg.epochs, cfg.minibatch_size, model.shuffle):
        for rows in epoch:
            metrics |= model.fit(rows)
    return metrics
