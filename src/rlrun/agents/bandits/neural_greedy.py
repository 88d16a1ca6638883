"""Neural greedy (arXiv 1802.09127): a network predicts the reward of every arm, and the best arm is pulled.

Dropout applies only to the last hidden layer.
"""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.agents.bandits.first_pulls import FirstPulls
from rlrun.config.schema import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, config
from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.losses import weighted_mean
from rlrun.networks.choices import legal
from rlrun.networks.heads import Head
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Spec


@config
class Training:
    """Training settings of the networks that predict rewards."""

    learning_rate: PositiveFloat
    learning_rate_decay: NonNegativeFloat
    reset_learning_rate_every: PositiveInt | None
    max_grad_norm: PositiveFloat | None
    init_pulls: NonNegativeInt


@register("algo", "neural_greedy")
class NeuralGreedy(Agent):
    """Epsilon-greedy on the predictions of a network."""

    actions = Discrete

    @config
    class Config(Training):
        epsilon: Fraction
        dropout: Fraction
        act_with_dropout: bool

    cfg: Any
    q: Any

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.arms = int(spec.action.n)
        self.noise = parts.stream("act")
        self.learn_noise = parts.stream("learn")
        self.first_pulls = FirstPulls(self.arms, cfg.init_pulls)
        self.build(parts)
        params = [param for param in self.parameters() if param.requires_grad]
        self.optim = Optim(params, cfg.learning_rate, max_grad_norm=cfg.max_grad_norm)

    def build(self, parts: Any) -> None:
        """Creates the network that predicts rewards."""
        self.q = Head(parts.torso(), self.arms)

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        if not explore:
            values = legal(self.value(obs), obs)
            return values.argmax(-1), {}
        scores = legal(self.score(obs), obs)
        return self.first_pulls(scores, carry)

    def value(self, obs: Any) -> Tensor:
        """Returns the expected rewards of the arms, [batch, arms]."""
        return self.q(obs)

    def score(self, obs: Any) -> Tensor:
        """Returns the scores of the arms, [batch, arms]; exploration pulls the arm with the highest score."""
        features = self.q.torso(obs)
        if self.cfg.act_with_dropout:
            features = features * self.kept(features, self.noise)
        value = self.q.output(features)
        random = self.noise.uniform(len(value), 1) < self.cfg.epsilon
        return torch.where(random, self.noise.uniform(*value.shape), value)

    def kept(self, features: Tensor, noise: Any) -> Tensor:
        """Returns the dropout mask of the features, scaled so that the expected value of the features is unchanged."""
        keep_prob = max(1 - self.cfg.dropout, 1e-6)
        return (noise.uniform(*features.shape) < keep_prob) / keep_prob

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        self.first_pulls.update(ctx)
        cfg = self.cfg
        age = ctx.updates  # number of updates since the learning rate was reset
        if cfg.reset_learning_rate_every:
            age %= cfg.reset_learning_rate_every
        learning_rate = cfg.learning_rate / (1 + cfg.learning_rate_decay * age)
        self.optim.learning_rate.fill_(learning_rate)
        return self.fit(batch, self.draws(batch))

    def draws(self, batch: Batch) -> Tensor:
        """Returns the random numbers for one gradient step."""
        reward = batch["reward"]
        features = reward.new_empty(len(reward), self.q.torso.features)
        return self.kept(features, self.learn_noise)

    @kernel
    def fit(self, batch: Batch, draws: Tensor) -> Metrics:
        loss = self.loss(batch, draws)
        norm = self.optim.step(loss)
        return {"loss": loss.detach(), "grad_norm": norm}

    def loss(self, batch: Batch, draws: Tensor) -> Tensor:
        """Returns the mean squared error of the predicted rewards of the pulled arms, 0-d."""
        features = self.q.torso(batch["obs"]) * draws
        predicted = chosen(self.q.output(features), batch)
        error = (predicted - batch["reward"]) ** 2
        return weighted_mean(error, batch["weight"])


def chosen(predicted: Tensor, batch: Batch) -> Tensor:
    """Returns the predictions for the pulled arms: [..., batch, arms] -> [..., batch]."""
    action = batch["action"].expand(predicted.shape[:-1]).unsqueeze(-1)
    return predicted.gather(-1, action).squeeze(-1)
