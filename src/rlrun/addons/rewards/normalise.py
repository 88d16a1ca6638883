"""Normalisation of rewards by running statistics of discounted returns, or of single rewards.

Each component of a reward vector is normalised separately.
"""

import torch
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.core.state import Statistics
from rlrun.types import Batch, Context, Metrics, Spec, Step


class NormaliseRewards(Addon):
    """Divides rewards by the standard deviation of discounted returns, so that of value targets becomes about 1.

    The agent learns from scaled rewards; metrics report raw ones. The mean is not subtracted.
    """

    def __init__(self, spec: Spec, gamma: float, clip: float | None, epsilon: float):
        """gamma: discount of the return. clip: limit of scaled rewards, None for none. epsilon: added to variances."""
        super().__init__()
        self.gamma, self.clip, self.epsilon = gamma, clip, epsilon
        shape: tuple[int, ...] = ()
        if spec.reward_dim > 1:
            shape = (spec.reward_dim,)
        self.statistics = Statistics(shape)
        self.returns = torch.zeros(spec.num_envs, *shape)  # discounted sums of the rewards of running episodes so far

    def on_step(self, step: Step) -> None:
        discount: float | Tensor = self.gamma
        if "n_steps" in step:
            discount = broadcastable(self.gamma ** step["n_steps"], step["reward"])
        self.returns.mul_(discount)
        self.returns.add_(step["reward"])
        is_valid = step["weight"] > 0
        self.statistics.add(self.returns[is_valid])
        done = step["terminated"] | step["truncated"]
        self.returns[done] = 0.0

    def relabel(self, batch: Batch) -> Batch:
        _, var = self.statistics.available()
        inverse_std = (var + self.epsilon).rsqrt().to(torch.float32)
        scaled = batch["reward"] * inverse_std
        if self.clip is not None:
            scaled = scaled.clamp(-self.clip, self.clip)
        return batch | {"reward": scaled}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        self.statistics.publish()
        return {}

    def get_extra_state(self) -> Tensor:
        return self.returns

    def set_extra_state(self, state: Tensor) -> None:
        self.returns = state.to(self.returns.device, copy=True)  # a copy, because it is changed in place


class StandardiseRewards(Addon):
    """Subtracts the mean of the single rewards, and divides by their standard deviation.

    From a reward that sums n discounted rewards, the sum of n discounted means is subtracted, and the result is clipped
    to n times `clip`. Of the rewards of a held action, one that was drawn uniformly is added to the statistics. In
    tasks that terminate, subtracting the mean may change the optimal policy.
    """

    def __init__(self, spec: Spec, gamma: float, clip: float | None, epsilon: float):
        """The arguments are those of `NormaliseRewards`. gamma: discount of the rewards that are summed."""
        super().__init__()
        self.gamma, self.clip, self.epsilon = gamma, clip, epsilon
        shape: tuple[int, ...] = ()
        if spec.reward_dim > 1:
            shape = (spec.reward_dim,)
        self.statistics = Statistics(shape)

    def on_step(self, step: Step) -> None:
        reward = step["reward"]
        if "drawn_reward" in step:
            reward = step["drawn_reward"]
        self.statistics.add(reward[step["weight"] > 0])

    def relabel(self, batch: Batch) -> Batch:
        mean, var = self.statistics.available()
        mean = mean.to(torch.float32)
        inverse_std = (var + self.epsilon).rsqrt().to(torch.float32)
        reward = batch["reward"]
        n_steps = broadcastable(batch.get("n_steps", torch.ones_like(batch["weight"])), reward)
        sum_of_discounts = n_steps
        if self.gamma < 1:
            sum_of_discounts = (1 - self.gamma**n_steps) / (1 - self.gamma)
        standardised = (reward - sum_of_discounts * mean) * inverse_std
        if self.clip is not None:
            limit = self.clip * n_steps
            standardised = torch.minimum(torch.maximum(standardised, -limit), limit)
        return batch | {"reward": standardised}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        self.statistics.publish()
        return {}


def broadcastable(per_row: Tensor, reward: Tensor) -> Tensor:
    """Returns one number for each row in a shape that broadcasts with rewards [..., components] of the same rows."""
    if per_row.dim() < reward.dim():
        return per_row.unsqueeze(-1)
    return per_row
