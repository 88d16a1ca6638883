"""Initial pulls: every arm in turn, before any estimate is used."""

import torch
from torch import Tensor, nn


class FirstPulls(nn.Module):
    """Chooses the arms in turn `pulls` times, then the arm of the largest score; never one whose score is -inf."""

    done: Tensor

    def __init__(self, arms: int, pulls: int):
        super().__init__()
        self.total = arms * pulls
        self.register_buffer("done", torch.zeros(()).long())

    def forward(self, scores: Tensor) -> Tensor:
        """Arms [num_envs] for scores [num_envs, arms]."""
        best = scores.argmax(-1)
        index = self.done + torch.ones_like(best).cumsum(0) - 1  # of each pull, from 0
        self.done.add_(len(best))
        turn = index % scores.shape[-1]
        score = scores.take_along_dim(turn.unsqueeze(-1), -1).squeeze(-1)
        is_initial = (index < self.total) & score.isfinite()
        return torch.where(is_initial, turn, best)
