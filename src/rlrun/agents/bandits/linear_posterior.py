"""Thompson sampling with Bayesian linear regression (Agrawal and Goyal 2013).

The variance of the rewards is also learned (arXiv 1802.09127).
"""

from collections.abc import Iterator, Mapping

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.agents.bandits.first_pulls import FirstPulls
from rlrun.agents.bandits.regression import BayesianRegression
from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.functional.losses import batch_mean
from rlrun.networks.choices import legal
from rlrun.networks.inputs import FlattenInputs
from rlrun.settings import Around, NonNegativeInt, PositiveFloat, config, register
from rlrun.tensors import flat
from rlrun.types import Batch, Context, Metrics, Obs, Spec

MAX_INPUTS = 1000  # a limit, because the cost of a step grows with the cube of the number of inputs


@register("algo", "linear_posterior")
class LinearPosterior(Agent):
    """Thompson sampling from a Bayesian linear regression for each arm."""

    actions = Discrete

    @config
    class Config:
        ridge: PositiveFloat
        a0: PositiveFloat
        b0: PositiveFloat
        init_pulls: NonNegativeInt

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.flatten = FlattenInputs(spec.obs)
        arms = int(spec.action.n)
        if self.flatten.size > MAX_INPUTS:
            raise ConfigError(
                f"algo=linear_posterior: observations of {self.flatten.size} numbers are not supported, at most "
                f"{MAX_INPUTS}, because every step solves a linear system of that size; algo=neural_linear has no limit"
            )
        self.regression = BayesianRegression(arms, self.flatten.size, cfg.ridge, cfg.a0, cfg.b0)
        self.first_pulls = FirstPulls(arms, cfg.init_pulls)
        self.noise = parts.stream("act")

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        yield from super().requires(own, around)
        yield from FirstPulls.unsupported(around)

    @torch.no_grad()
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        context = self.flatten(obs)
        if not explore:
            mean = self.regression.mean(context)
            return legal(mean, obs).argmax(-1), {}
        sample = self.regression.draw(context, self.noise)
        scores = legal(sample, obs)
        return self.first_pulls(scores, carry)

    def action_values(self, obs: Obs, action: Tensor) -> Tensor:
        return self.regression.mean(self.flatten(obs))

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        self.first_pulls.update(ctx)
        pulls = flat(rollout)
        self.regression.add(self.flatten(pulls["obs"]), pulls["action"], pulls["reward"], pulls["weight"])
        return {"loss/reward": batch_mean(pulls["reward"])}
