"""Every arm in turn before anything is believed."""

import torch
from torch import Tensor, nn


class FirstPulls(nn.Module):
    """The arm of the largest score, but first, `pulls` times, the arms in turn; never one whose score is -inf."""

    done: Tensor

    def __init__(self, arms: int, pulls: int):
        super().__init__()
        self.total = arms * pulls
        self.register_buffer("done", torch.zeros(()).long())

    def forward(self, scores: Tensor) -> Tensor:
        """scores [num_envs, arms] to arms [num_envs]."""
        best = scores.argmax(-1)
        number = self.done + torch.ones_like(best).cumsum(0) - 1
        self.done.add_(len(best))
        turn = number % scores.shape[-1]
        due = (number < self.total) & scores.take_along_dim(turn.unsqueeze(-1), -1).squeeze(-1).isfinite()
        return torch.where(due, turn, best)
