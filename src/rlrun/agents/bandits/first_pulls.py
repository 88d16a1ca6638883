"""Every arm in turn before anything is believed."""

import torch
from torch import Tensor, nn


class FirstPulls(nn.Module):
    """Replaces the first arms * pulls actions of a run."""

    done: Tensor

    def __init__(self, arms: int, pulls: int):
        super().__init__()
        self.arms, self.total = arms, arms * pulls
        self.register_buffer("done", torch.zeros(()).long())

    def forward(self, action: Tensor) -> Tensor:
        """Actions [num_envs], those that are due replaced."""
        number = self.done + torch.ones_like(action).cumsum(0) - 1
        self.done.add_(len(action))
        return torch.where(number < self.total, number % self.arms, action)
