"""A bandit agent with Bayes by backprop (Blundell et al. 2015, arXiv 1505.05424).

It learns a Gaussian posterior over the weights of the network that predicts rewards. Exploration samples new weights
for every call of `act`; evaluations use the posterior mean.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.agents.bandits.neural_greedy import NeuralGreedy, RewardHead, Training, chosen
from rlrun.core.parts import Parts
from rlrun.functional.losses import weighted_mean
from rlrun.functional.posteriors import normal_kl
from rlrun.networks.stacked import Stacked
from rlrun.settings import PositiveFloat, config, register
from rlrun.types import Batch, Context, Metrics, Obs


@register("algo", "variational_bandit")
class Variational(NeuralGreedy):
    """Predicts rewards with a variational Bayesian network and chooses arms by Thompson sampling."""

    @config
    class Config(Training):
        noise_std: PositiveFloat
        prior_std: PositiveFloat
        init_std: PositiveFloat

    def build(self, parts: Parts) -> None:
        template = RewardHead(parts.torso(members=1), self.arms, members=1)
        weights = [param.detach().reshape(-1) for param in template.parameters()]
        self.mean = nn.Parameter(torch.cat(weights))
        rho = math.log(math.expm1(self.cfg.init_std))
        self.rho = nn.Parameter(torch.full_like(self.mean, rho))  # the standard deviation is softplus(rho)
        self.q = Stacked(template)
        self.num_features = template.torso.features  # type: ignore[assignment]

    def value(self, obs: Obs) -> Tensor:
        return self.q(obs, self.mean.unsqueeze(0))

    def score(self, obs: Obs, mask: Tensor | None = None) -> Tensor:
        draws = self.noise.normal(1, self.q.size)
        return self.q(obs, self.weights(draws), mask)

    def weights(self, draws: Tensor) -> Tensor:
        """Returns weights [members, P] of the posterior, computed from standard normal draws [members, P]."""
        std = F.softplus(self.rho)
        return self.mean + std * draws

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        stored = batch["reward"].new_full((), len(ctx.data))
        return super().update(batch | {"stored": stored}, ctx)

    def draws(self, batch: Batch) -> Batch:
        return super().draws(batch) | {"weights": self.learn_noise.normal(1, self.q.size)}

    def loss(self, batch: Batch, draws: Batch) -> Tensor:
        """Returns the mean negative log-likelihood of the rewards, plus KL(posterior || prior) / number of stored
        rewards; 0-d."""
        weights = self.weights(draws["weights"])
        rewards = self.q(batch["obs"], weights, draws["mask"])
        predicted = chosen(rewards, batch)
        error = predicted - batch["reward"]
        nll = weighted_mean(0.5 * (error / self.cfg.noise_std) ** 2, batch["weight"])
        std = F.softplus(self.rho)
        kl = normal_kl(self.mean, std, self.cfg.prior_std)
        return nll + kl / batch["stored"]
