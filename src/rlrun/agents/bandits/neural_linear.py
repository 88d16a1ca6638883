"""Neural linear (arXiv 1802.09127): Bayesian linear regression on the last hidden layer of a network.

The posterior is updated with every pull. In every `nn_update_ratio`-th update the network, which is trained to predict
rewards, takes a gradient step. Because this changes the features of all pulls, the posterior is then computed anew from
the whole replay buffer.
"""

import torch
from torch import Tensor

from rlrun.agents.bandits.neural_greedy import NeuralGreedy, Training
from rlrun.agents.bandits.regression import BayesianRegression
from rlrun.core.parts import Parts
from rlrun.functional.losses import batch_mean
from rlrun.settings import PositiveFloat, PositiveInt, config, register
from rlrun.types import Batch, Context, Metrics, Obs


@register("algo", "neural_linear")
class NeuralLinear(NeuralGreedy):
    """Thompson sampling with Bayesian linear regression on learned features."""

    @config
    class Config(Training):
        nn_update_ratio: PositiveInt
        ridge: PositiveFloat
        a0: PositiveFloat
        b0: PositiveFloat

    num_added: Tensor  # flat index in the replay buffer of the first pull that is not yet part of the posterior

    def build(self, parts: Parts) -> None:
        super().build(parts)
        cfg = self.cfg
        self.register_buffer("num_added", torch.zeros(()).long())
        self.regression = BayesianRegression(self.arms, self.num_features, cfg.ridge, cfg.a0, cfg.b0)

    def value(self, obs: Obs) -> Tensor:
        return self.regression.mean(self.q.torso(obs))

    def score(self, obs: Obs, mask: Tensor | None = None) -> Tensor:
        return self.regression.draw(self.q.features(obs, mask), self.noise)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        if (ctx.updates + 1) % self.cfg.nn_update_ratio == 0:
            metrics = super().update(batch, ctx)
            self.regression.forget()
            self.add(ctx.data.all())
            return metrics
        self.first_pulls.update(ctx)
        new_pulls = ctx.data.since(int(self.num_added))
        self.add(new_pulls)
        return {"loss/reward": batch_mean(batch["reward"])}

    @torch.no_grad()
    def add(self, pulls: Batch) -> None:
        """Updates the posterior with pulls, oldest first; there may be none."""
        if not len(pulls["index"]):
            return
        features = self.q.features(pulls["obs"])
        self.regression.add(features, pulls["action"], pulls["reward"], pulls["weight"])
        self.num_added.copy_(pulls["index"][-1] + 1)
