"""Base class of multi-armed bandit agents, which count the pulls and sum the rewards of every arm of every bandit."""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.functional.losses import batch_mean
from rlrun.functional.tabular import random_argmax
from rlrun.tensors import flat
from rlrun.types import Batch, Context, Metrics, Spec


class MultiArmed(Agent):
    """Pulls the arm with the highest score; ties are broken at random. The observation is the number of the bandit.

    The tables `counts` and `totals` are [bandits, arms].
    """

    actions = Discrete
    observations = Discrete

    counts: Tensor
    totals: Tensor

    def __init__(self, cfg: Any, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.arms = int(spec.action.n)
        bandits = int(spec.obs.n)
        self.register_buffer("counts", torch.zeros(bandits, self.arms))
        self.register_buffer("totals", torch.zeros(bandits, self.arms))
        self.noise = parts.stream("act")

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        context = self.context(obs)
        if not explore:
            return self.value(context).argmax(-1), {}
        scores = self.score(context)
        return random_argmax(scores, self.noise.uniform(*scores.shape)), {}

    def context(self, obs: Tensor) -> Tensor:
        """Returns the index of the bandit in the tables, counted from 0; [batch]."""
        return obs - int(self.spec.obs.start)

    def value(self, context: Tensor) -> Tensor:
        """Returns the estimated mean rewards, [batch, arms]."""
        counts = self.counts[context].clamp(min=1)
        return self.totals[context] / counts

    def score(self, context: Tensor) -> Tensor:
        """Returns the scores of the arms, [batch, arms]; exploration pulls the arm with the highest score."""
        raise NotImplementedError

    def action_values(self, obs: Tensor, action: Tensor) -> Tensor:  # type: ignore[override]
        return self.value(self.context(obs))

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        used = {key: rollout[key] for key in ("obs", "action", "reward", "weight")}
        return self.learn(flat(used))

    @kernel
    def learn(self, pulls: Batch) -> Metrics:
        """Updates the tables with pulls [batch]; the batch may hold several pulls of one arm."""
        weight = pulls["weight"]
        cell = self.context(pulls["obs"]) * self.arms + pulls["action"]
        self.counts.view(-1).index_add_(0, cell, weight)
        self.totals.view(-1).index_add_(0, cell, weight * pulls["reward"])
        return {"loss/reward": batch_mean(pulls["reward"])}
