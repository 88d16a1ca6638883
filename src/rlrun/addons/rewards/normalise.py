"""Normalisation of rewards by running statistics of discounted returns, or of single rewards.

Each component of a reward vector is normalised separately.
"""

import logging

import torch
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.core.statistics import statistics_of
from rlrun.envs.config import NormalizeConfig
from rlrun.tensors import row
from rlrun.types import Batch, Context, Discount, Metrics, Spec, Step


class RewardNormaliser(Addon):
    """Base of the normalisers of rewards. After `max_updates` updates, their statistics stay as they are."""

    updates: Tensor | None

    def __init__(self, spec: Spec, gamma: Discount, cfg: NormalizeConfig):
        """gamma: discount of the return, or of the rewards that are summed."""
        super().__init__()
        self.gamma, self.cfg = row(gamma), cfg
        shape: tuple[int, ...] = ()
        if spec.reward_dim > 1:
            shape = (spec.reward_dim,)
        self.shape = shape
        self.statistics = statistics_of(cfg.statistics, shape, "env.normalize.statistics")
        self.register_buffer("updates", None)
        if cfg.max_updates is not None:
            self.updates = torch.zeros((), dtype=torch.int64)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        most = self.cfg.max_updates
        if self.updates is None or most is None:
            self.statistics.publish()
        elif self.updates < most:
            self.statistics.publish()
            self.updates += 1
        return {}


class NormaliseRewards(RewardNormaliser):
    """Divides rewards by the standard deviation of discounted returns, so that of value targets becomes about 1.

    The agent learns from scaled rewards; metrics report raw ones. The mean is not subtracted.
    """

    def __init__(self, spec: Spec, gamma: Discount, cfg: NormalizeConfig):
        super().__init__(spec, gamma, cfg)
        # discounted sums of the rewards of running episodes so far
        self.returns = torch.zeros(spec.num_envs, *self.shape)

    def on_step(self, step: Step) -> None:
        discount: float | Tensor = self.gamma
        if "n_steps" in step:
            discount = self.gamma ** broadcastable(step["n_steps"], step["reward"])
        self.returns.mul_(discount)
        self.returns.add_(step["reward"])
        is_valid = step["weight"] > 0
        self.statistics.add(self.returns[is_valid])
        done = step["terminated"] | step["truncated"]
        self.returns[done] = 0.0

    def relabel(self, batch: Batch) -> Batch:
        _, var = self.statistics.available()
        inverse_std = (var + self.cfg.epsilon).rsqrt().to(torch.float32)
        scaled = batch["reward"] * inverse_std
        clip = self.cfg.clip_reward
        if clip is not None:
            scaled = scaled.clamp(-clip, clip)
        return batch | {"reward": scaled}

    def get_extra_state(self) -> Tensor:
        return self.returns

    def set_extra_state(self, state: Tensor) -> None:
        self.returns = state.to(self.returns.device, copy=True)  # a copy, because it is changed in place


class StandardiseRewards(RewardNormaliser):
    """Subtracts the mean of the single rewards, and divides by their standard deviation.

    From a reward that sums n discounted rewards, the sum of n discounted means is subtracted, and the result is clipped
    to n times `clip_reward`. Of the rewards of a held action, one that was drawn uniformly is added to the statistics.
    In tasks that terminate, subtracting the mean may change the optimal policy; `zero_mean=false` does not subtract it.
    """

    def __init__(self, spec: Spec, gamma: Discount, cfg: NormalizeConfig):
        super().__init__(spec, gamma, cfg)
        self.warns = cfg.zero_mean  # whether an episode that terminates will be reported
        self.terminates: Tensor | None = None  # 0-d bool: whether one has terminated

    def on_step(self, step: Step) -> None:
        if self.warns:
            terminated = step["terminated"].any()
            self.terminates = terminated if self.terminates is None else self.terminates | terminated
        if self.cfg.update_on != "rollout":
            return
        reward = step["reward"]
        if "drawn_reward" in step:
            reward = step["drawn_reward"]
        self.statistics.add(reward[step["weight"] > 0])

    def on_batch(self, batch: Batch, phase: str) -> None:
        if self.cfg.update_on == phase:
            self.statistics.add(batch["reward"][valid_rows(batch)])

    def relabel(self, batch: Batch) -> Batch:
        mean, var = self.statistics.available()
        inverse_std = (var + self.cfg.epsilon).rsqrt().to(torch.float32)
        reward = batch["reward"]
        n_steps = broadcastable(batch.get("n_steps", torch.ones_like(batch["weight"])), reward)
        if self.cfg.zero_mean:
            reward = reward - sum_of_discounts(self.gamma, n_steps) * mean.to(torch.float32)
        standardised = reward * inverse_std
        if self.cfg.clip_reward is not None:
            limit = self.cfg.clip_reward * n_steps
            standardised = torch.minimum(torch.maximum(standardised, -limit), limit)
        return batch | {"reward": standardised}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        if self.warns and self.terminates is not None and self.terminates:
            self.warns = False
            logging.getLogger(__name__).warning(
                "env.normalize.reward_by=rewards: episodes of this environment terminate, so subtracting the mean of "
                "the rewards changes which policy is best; env.normalize.zero_mean=false does not subtract it"
            )
        return super().update(batch, ctx)


def valid_rows(batch: Batch) -> Tensor:
    """Returns which rows of a batch from replay are transitions, and none that is repeated or masked; [B] or [T, B]."""
    if "mask" in batch:
        return batch["mask"] > 0
    return batch["weight"] > 0


def sum_of_discounts(gamma: float | Tensor, n_steps: Tensor) -> Tensor:
    """Returns sum_{k<n} gamma^k, in the shape of n_steps, or [..., components] for a gamma of each component."""
    if isinstance(gamma, Tensor):
        return torch.where(gamma < 1, (1 - gamma**n_steps) / (1 - gamma), n_steps)
    if gamma < 1:
        return (1 - gamma**n_steps) / (1 - gamma)
    return n_steps


def broadcastable(per_row: Tensor, reward: Tensor) -> Tensor:
    """Returns one number for each row in a shape that broadcasts with rewards [..., components] of the same rows."""
    if per_row.dim() < reward.dim():
        return per_row.unsqueeze(-1)
    return per_row
