"""What multi-armed bandit agents share: per bandit and arm, how often it was pulled and what it paid in all."""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.functional.tabular import random_argmax
from rlrun.nested import flat
from rlrun.types import Batch, Context, Metrics, Spec


class MultiArmed(Agent):
    """Plays the arm of the largest score; ties are broken at random. Tables are [bandits, arms]."""

    actions = Discrete
    observations = Discrete

    counts: Tensor
    totals: Tensor

    def __init__(self, cfg: Any, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.arms = int(spec.action.n)
        self.register_buffer("counts", torch.zeros(int(spec.obs.n), self.arms))
        self.register_buffer("totals", torch.zeros(int(spec.obs.n), self.arms))
        self.noise = parts.stream("act")

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        context = obs - int(self.spec.obs.start)
        if not explore:
            return self.value(context).argmax(-1), {}
        scores = self.score(context)
        return random_argmax(scores, self.noise.uniform(*scores.shape)), {}

    def value(self, context: Tensor) -> Tensor:
        """What arms are believed to pay, [batch, arms]."""
        return self.totals[context] / self.counts[context].clamp(min=1)

    def score(self, context: Tensor) -> Tensor:
        """What arms are worth trying, [batch, arms]."""
        raise NotImplementedError

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        pulls = flat({key: rollout[key] for key in ("obs", "action", "reward", "weight")})
        return self.learn(pulls)

    @kernel
    def learn(self, pulls: Batch) -> Metrics:
        """From pulls [batch], of which several may be of one arm."""
        cell = (pulls["obs"] - int(self.spec.obs.start)) * self.arms + pulls["action"]
        self.counts.view(-1).index_add_(0, cell, pulls["weight"])
        self.totals.view(-1).index_add_(0, cell, pulls["weight"] * pulls["reward"])
        return {"reward": pulls["reward"].mean()}
