"""Neural linear (arXiv 1802.09127): Bayesian linear regression on the last hidden layer of a network.

The network is trained to predict rewards. Because its features change, the posterior is refitted to the whole replay
buffer every `refit_every` updates.
"""

from typing import Any

from torch import Tensor

from rlrun.agents.bandits.neural_greedy import NeuralGreedy, Training
from rlrun.agents.bandits.regression import BayesianRegression
from rlrun.config.schema import PositiveFloat, PositiveInt, config
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "neural_linear")
class NeuralLinear(NeuralGreedy):
    """Thompson sampling with Bayesian linear regression on learned features."""

    @config
    class Config(Training):
        refit_every: PositiveInt
        ridge: PositiveFloat
        a0: PositiveFloat
        b0: PositiveFloat

    def build(self, parts: Any) -> None:
        super().build(parts)
        cfg = self.cfg
        self.regression = BayesianRegression(self.arms, self.num_features, cfg.ridge, cfg.a0, cfg.b0)

    def value(self, obs: Any) -> Tensor:
        return self.regression.mean(self.q.torso(obs))

    def score(self, obs: Any, mask: Tensor | None = None) -> Tensor:
        return self.regression.draw(self.q.features(obs, mask), self.noise)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        metrics = super().update(batch, ctx)
        if (ctx.updates + 1) % self.cfg.refit_every == 0:
            self.refit(ctx.data.all())
        return metrics

    def refit(self, data: Batch) -> None:
        """Replaces the posterior with one fitted to the given data."""
        self.regression.forget()
        features = self.q.torso(data["obs"]).detach()
        self.regression.add(features, data["action"], data["reward"], data["weight"])
