"""Causal behaviour cloning: ResiduIL (Swamy et al. 2022, arXiv 2202.01312).

If noise that is correlated over time affects both the actions and the observations of the demonstrator, behaviour
cloning learns a correlation that is not causal. The previous observation does not depend on the current noise. It can
therefore not predict the residual, demonstrated action minus policy action, of a policy that is equal to the
demonstrator's. So an adversary learns to predict the residual from the previous observation, and the policy learns to
make the residual unpredictable.
"""

from gymnasium.spaces import Box
from torch import Tensor

from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.losses import weighted_mean
from rlrun.nested import index
from rlrun.networks.heads import Head
from rlrun.settings import NonNegativeFloat, PositiveFloat, Scheduled, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "causal_bc")
class CausalBC(Agent):
    """Trains a policy and an adversary that predicts its residuals with alternating gradient steps."""

    actions = Box

    @config
    class Config:
        learning_rate: Scheduled[PositiveFloat]
        adversary_learning_rate: Scheduled[PositiveFloat]
        cloning_coef: NonNegativeFloat
        norm_coef: NonNegativeFloat

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.sequence_length = 2  # the previous observation and the current one
        self.actor = Head(parts.torso(), spec.action.shape[0])
        self.adversary = Head(parts.torso(), spec.action.shape[0])
        self.actor_optim = Optim(self.actor.parameters(), cfg.learning_rate)
        self.adversary_optim = Optim(self.adversary.parameters(), cfg.adversary_learning_rate)

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        return self.actor(obs), {}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """Updates adversary and policy from pairs of consecutive steps, [2, batch, ...].

        Pairs whose steps belong to two episodes are masked.
        """
        metrics = self.update_adversary(batch)
        return metrics | self.update_actor(batch)

    def residual(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the policy's residuals and the adversary's predictions, both [batch, actions], and weights
        [batch]."""
        previous_obs = index(batch["obs"], 0)
        obs = index(batch["obs"], 1)
        residual = batch["action"][1] - self.actor(obs)
        predicted = self.adversary(previous_obs)
        weight = batch["mask"][1] * batch["weight"]
        return residual, predicted, weight

    @kernel
    def update_adversary(self, batch: Batch) -> Metrics:
        residual, predicted, weight = self.residual(batch)
        gain = (2 * residual.detach() * predicted - predicted**2).sum(-1)
        penalty = self.cfg.norm_coef * norm(predicted)
        loss = weighted_mean(penalty - gain, weight)
        self.adversary_optim.step(loss)
        return {"loss/adversary": loss.detach()}

    @kernel
    def update_actor(self, batch: Batch) -> Metrics:
        residual, predicted, weight = self.residual(batch)
        gain = 2 * residual * predicted.detach()
        cloning = self.cfg.cloning_coef * residual**2
        loss = weighted_mean((gain + cloning).sum(-1), weight)
        self.actor_optim.step(loss)
        squared_residual = (residual.detach() ** 2).sum(-1)
        return {"loss/actor": loss.detach(), "loss/residual": weighted_mean(squared_residual, weight)}


def norm(x: Tensor) -> Tensor:
    """Returns the Euclidean norm of each row, with a finite gradient at 0."""
    squared = (x**2).sum(-1)
    return (squared + 1e-12).sqrt()
