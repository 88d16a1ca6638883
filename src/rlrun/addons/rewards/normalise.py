"""Normalisation of rewards: division by the running standard deviation of the discounted return.

Value targets then have a standard deviation near 1. Each component of a reward vector is normalised separately.
"""

from typing import Any

import torch
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.core.state import Statistics
from rlrun.types import Batch, Context, Metrics, Spec, Step


class NormaliseRewards(Addon):
    """The agent learns from scaled rewards; metrics report raw ones. The mean is not subtracted."""

    def __init__(self, spec: Spec, gamma: float, clip: float | None, epsilon: float):
        """gamma: discount of the return. clip: limit of scaled rewards, None for none. epsilon: added to variances."""
        super().__init__()
        self.gamma, self.clip, self.epsilon = gamma, clip, epsilon
        shape: tuple[int, ...] = ()
        if spec.reward_dim > 1:
            shape = (spec.reward_dim,)
        self.statistics = Statistics(shape)
        self.returns = torch.zeros(spec.num_envs, *shape)  # discounted returns of the running episodes

    def collect(self, obs: Any, step: Step, extras: Batch) -> None:
        self.returns.mul_(self.gamma)
        self.returns.add_(step.reward)
        is_valid = step.weight > 0
        self.statistics.add(self.returns[is_valid])
        done = step.terminated | step.truncated
        self.returns[done] = 0.0

    def relabel(self, batch: Batch) -> Batch:
        moments = self.statistics.available()
        inverse_std = (moments.var + self.epsilon).rsqrt().to(torch.float32)
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
