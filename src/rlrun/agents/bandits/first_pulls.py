"""Initial pulls: all arms are pulled in turn before estimates decide."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rlrun.core.state import StartsFresh
from rlrun.settings import Around
from rlrun.types import Batch, Context

PULLS = "carry.pulls"


class FirstPulls(StartsFresh, nn.Module):
    """Chooses every arm `rounds` times in turn, then the arm with the highest score.

    An arm with the score -inf is forbidden: in its turn the best arm is chosen. The extra `carry.pulls` [num_envs] is
    the number of pulls so far by all environments.
    """

    @staticmethod
    def unsupported(around: Around) -> Iterator[str]:
        """Yields why a bandit with initial pulls is not supported."""
        if around.shards is not None:
            yield f"algo.loop.shards is not supported by algo={around.algo}: each shard would make all initial pulls"

    done: Tensor  # number of pulls before the last rollout; without `carry.pulls`, counting begins here

    def __init__(self, arms: int, rounds: int):
        super().__init__()
        self.total = arms * rounds
        self.register_buffer("done", torch.zeros(()).long())

    def forward(self, scores: Tensor, carry: Batch) -> tuple[Tensor, Batch]:
        """Returns arms [num_envs] for scores [num_envs, arms], and the extra."""
        num_envs, num_arms = scores.shape
        best = scores.argmax(-1)
        pulls = carry.get(PULLS, self.done.expand(num_envs))
        index = pulls + torch.ones_like(best).cumsum(0) - 1  # environment i makes the pull with number pulls + i
        turn = index % num_arms
        score = scores.take_along_dim(turn.unsqueeze(-1), -1).squeeze(-1)
        is_initial = (index < self.total) & score.isfinite()
        arms = torch.where(is_initial, turn, best)
        return arms, {PULLS: pulls + num_envs}

    def update(self, ctx: Context) -> None:
        """Stores the number of pulls so far, without those of a rollout that this update learns from."""
        self.done.fill_(ctx.env_steps)
