"""Rewards divided by the running deviation of the discounted return, so that critics see numbers near 1.

Each component of a reward vector by its own.
"""

from typing import Any

import torch
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.core.state import RunningMoments
from rlrun.types import Batch, Context, Metrics, Spec, Step

CLIP = 10.0


class NormaliseRewards(Addon):
    """Metrics keep raw rewards; only what the agent learns from is scaled. The mean is not taken away."""

    def __init__(self, spec: Spec, gamma: float):
        super().__init__()
        self.gamma = gamma
        shape = (spec.reward_dim,) if spec.reward_dim > 1 else ()
        self.live, self.pending = RunningMoments(shape), RunningMoments(shape)
        self.returns = torch.zeros(spec.num_envs, *shape)  # discounted, of the running episodes

    def collect(self, obs: Any, step: Step, extras: Batch) -> None:
        self.returns.mul_(self.gamma).add_(step.reward)
        self.pending.add(self.returns[step.weight > 0])
        self.returns[step.terminated | step.truncated] = 0.0

    def relabel(self, batch: Batch) -> Batch:
        # before anything was seen the batch itself gives the scale
        var = self.live.var if self.live.count else self.pending.var
        scaled = batch["reward"] * (var + 1e-8).rsqrt().to(torch.float32)
        return batch | {"reward": scaled.clamp(-CLIP, CLIP)}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        self.live.take(self.pending)
        return {}

    def get_extra_state(self) -> Tensor:
        return self.returns

    def set_extra_state(self, state: Tensor) -> None:
        self.returns = state.to(self.returns.device, copy=True)  # changed in place from here on
