"""Initial pulls: all arms are pulled in turn before estimates decide."""

import torch
from torch import Tensor, nn


class FirstPulls(nn.Module):
    """Chooses every arm `pulls` times in turn, then the arm with the highest score.

    If the score of an arm whose turn it is is -inf, because the arm is forbidden, the best arm is chosen instead.
    """

    done: Tensor

    def __init__(self, arms: int, pulls: int):
        super().__init__()
        self.total = arms * pulls
        self.register_buffer("done", torch.zeros(()).long())

    def forward(self, scores: Tensor) -> Tensor:
        """Returns the chosen arms [num_envs] for scores [num_envs, arms]."""
        best = scores.argmax(-1)
        index = self.done + torch.ones_like(best).cumsum(0) - 1  # number of earlier pulls
        self.done.add_(len(best))
        turn = index % scores.shape[-1]
        score = scores.take_along_dim(turn.unsqueeze(-1), -1).squeeze(-1)
        is_initial = (index < self.total) & score.isfinite()
        return torch.where(is_initial, turn, best)
