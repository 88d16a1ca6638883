"""Neural greedy (arXiv 1802.09127): a network predicts the reward of every arm, and the best arm is pulled.

The other bandit agents with neural networks override methods of this one. All of them support dropout (Srivastava et
al. 2014) of the last hidden layer, in updates and, with `act_with_dropout`, in exploration too (Gal and Ghahramani
2016, arXiv 1506.02142). Evaluations draw no random numbers, and so have no dropout.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.agents.bandits.first_pulls import FirstPulls
from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.core.random import Stream
from rlrun.core.state import Optim
from rlrun.functional.losses import weighted_mean
from rlrun.networks.choices import legal
from rlrun.networks.heads import Head
from rlrun.settings import Around, Fraction, NonNegativeInt, PositiveFloat, Scheduled, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@config
class Training:
    """Training settings of the networks that predict rewards."""

    learning_rate: Scheduled[PositiveFloat]
    max_grad_norm: PositiveFloat | None
    dropout: Fraction
    act_with_dropout: bool
    init_pulls: NonNegativeInt


class RewardHead(Head):
    """Predicts the rewards of all arms: [batch, arms], or [members, batch, arms] with members."""

    def forward(self, obs: Obs, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """`mask` scales the features of the last hidden layer; its shape can be broadcast to that of the features."""
        return self.output(self.features(obs, mask))

    def features(self, obs: Obs, mask: Tensor | None = None) -> Tensor:
        """Returns the activations of the last hidden layer, scaled by `mask` if there is one."""
        features = self.torso(obs)
        if mask is None:
            return features
        return features * mask


@register("algo", "neural_greedy")
class NeuralGreedy(Agent):
    """Epsilon-greedy on the predictions of a network."""

    actions = Discrete

    @config
    class Config(Training):
        epsilon: Fraction

    cfg: Any
    q: Any
    num_features: int

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.arms = int(spec.action.n)
        self.noise = parts.stream("act")
        self.learn_noise = parts.stream("learn")
        self.first_pulls = FirstPulls(self.arms, cfg.init_pulls)
        self.build(parts)
        params = [param for param in self.parameters() if param.requires_grad]
        self.optim = Optim(params, cfg.learning_rate, max_grad_norm=cfg.max_grad_norm)

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        yield from super().requires(own, around)
        yield from FirstPulls.unsupported(around)

    def build(self, parts: Parts) -> None:
        """Creates the network that predicts rewards, and sets `num_features`, the width of its last hidden layer."""
        self.q = RewardHead(parts.torso(), self.arms)
        self.num_features = self.q.torso.features

    @torch.no_grad()
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        if not explore:
            values = legal(self.value(obs), obs)
            return values.argmax(-1), {}
        mask = None
        if self.cfg.act_with_dropout:
            mask = self.dropout_mask(self.noise, len(carry["first"]))
        scores = legal(self.score(obs, mask), obs)
        return self.first_pulls(scores, carry)

    def value(self, obs: Obs) -> Tensor:
        """Returns the expected rewards of the arms, [batch, arms]."""
        return self.q(obs)

    def score(self, obs: Obs, mask: Tensor | None = None) -> Tensor:
        """Returns the scores of the arms, [batch, arms]; exploration pulls the arm with the highest score.

        mask: dropout mask [batch, features]; None: no dropout.
        """
        value = self.q(obs, mask)
        random = self.noise.uniform(len(value), 1) < self.cfg.epsilon
        return torch.where(random, self.noise.uniform(*value.shape), value)

    def dropout_mask(self, noise: Stream, *rows: int) -> Tensor | None:
        """Returns a mask [*rows, features] of the last hidden layer: 0 with probability `dropout`, and 1 on average.

        None without dropout.
        """
        if not self.cfg.dropout:
            return None
        keep_prob = max(1 - self.cfg.dropout, 1e-6)
        kept = noise.uniform(*rows, self.num_features) < keep_prob
        return kept / keep_prob

    def action_values(self, obs: Obs, action: Tensor) -> Tensor:
        return self.value(obs)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        self.first_pulls.update(ctx)
        return self.fit(batch, self.draws(batch))

    def draws(self, batch: Batch) -> Batch:
        """Returns the random numbers for one gradient step. `mask`: dropout mask, or None without dropout."""
        mask: Any = self.dropout_mask(self.learn_noise, len(batch["reward"]))
        return {"mask": mask}

    @kernel
    def fit(self, batch: Batch, draws: Batch) -> Metrics:
        loss = self.loss(batch, draws)
        norm = self.optim.step(loss)
        return {"loss/loss": loss.detach(), "loss/grad_norm": norm}

    def loss(self, batch: Batch, draws: Batch) -> Tensor:
        """Returns the mean squared error of the predicted rewards of the pulled arms, 0-d."""
        predicted = chosen(self.q(batch["obs"], draws["mask"]), batch)
        error = (predicted - batch["reward"]) ** 2
        return weighted_mean(error, batch["weight"])


def chosen(predicted: Tensor, batch: Batch) -> Tensor:
    """Returns the predictions for the pulled arms: [..., batch, arms] -> [..., batch]."""
    action = batch["action"].expand(predicted.shape[:-1]).unsqueeze(-1)
    return predicted.gather(-1, action).squeeze(-1)
