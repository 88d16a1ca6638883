"""What intrinsic rewards share: a reward column of their own, its scale, and a model that learns what surprised it."""

from dataclasses import replace

import torch
from torch import Tensor

from rlrun.buffers.rollout import flat, minibatches
from rlrun.config.schema import Fraction, NonNegativeFloat, PositiveFloat, PositiveInt, config
from rlrun.core.addon import Addon
from rlrun.core.parts import Parts
from rlrun.core.state import RunningMoments
from rlrun.functional.returns import reverse_recurrence
from rlrun.types import Batch, Bonus, Context, Metrics, Spec


class Intrinsic(Addon):
    """One more reward column for on-policy agents. Subclasses say what surprises (`surprise`) and learn it (`fit`).

    The surprise is divided by the running deviation of its discounted sum, its mean is not taken away (arXiv
    1810.12894, sec. 2.4). It is that of the model before it learns from the rollout.
    """

    @config
    class Config:
        gamma: Fraction
        episodic: bool
        coef: NonNegativeFloat
        reward_coef: NonNegativeFloat
        clip: PositiveFloat | None
        hidden: list[PositiveInt]
        learning_rate: PositiveFloat
        epochs: PositiveInt
        minibatch_size: PositiveInt | None

    def __init__(self, cfg, spec: Spec, parts: Parts):
        super().__init__()
        self.cfg = cfg
        self.network = {"name": "auto", "hidden": cfg.hidden, "activation": "relu", "init": "orthogonal"}
        self.moments = RunningMoments(())
        self.shuffle = parts.stream("shuffle")

    def spec(self, spec: Spec) -> Spec:
        bonus = Bonus(self.cfg.gamma, self.cfg.episodic, self.cfg.coef)
        return replace(spec, reward_dim=spec.reward_dim + 1, bonuses=(*spec.bonuses, bonus))

    @torch.no_grad()
    def relabel(self, batch: Batch) -> Batch:
        """Once for every rollout, for the scale grows here."""
        weight = batch["weight"]
        explored = self.seen({key: batch[key] for key in ("obs", "action", "next_obs", "weight")})
        bonus = self.scaled(self.surprise(flat(explored)).view_as(weight) * weight, weight)
        own = (batch["reward"] * self.cfg.reward_coef).view(*weight.shape, -1)
        return batch | {"reward": torch.cat([own, bonus.unsqueeze(-1)], -1), "explored": explored}

    def scaled(self, surprise: Tensor, weight: Tensor) -> Tensor:
        sums = reverse_recurrence(surprise, torch.full_like(surprise, self.cfg.gamma))
        self.moments.add(sums[weight > 0])
        scaled = surprise * (self.moments.var + 1e-16).rsqrt().to(surprise)
        return scaled if self.cfg.clip is None else scaled.clamp(max=self.cfg.clip)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        metrics = {"bonus": batch["reward"][..., -1].mean()}
        for epoch in minibatches(batch["explored"], self.cfg.epochs, self.cfg.minibatch_size, self.shuffle):
            for rows in epoch:
                metrics |= self.fit(rows)
        return metrics

    def seen(self, rows: Batch) -> Batch:
        """The rollout as the model sees it, [time, env, ...]."""
        return rows

    def surprise(self, rows: Batch) -> Tensor:
        """Of every transition, [batch]."""
        raise NotImplementedError

    def fit(self, rows: Batch) -> Metrics:
        """One step of what the model learns."""
        raise NotImplementedError
