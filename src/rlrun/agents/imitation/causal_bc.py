"""Causal behaviour cloning: ResiduIL (Swamy et al. 2022, arXiv 2202.01312).

Noise that lasts longer than a step moves the demonstrator and what is observed alike, and a clone takes it for a reason
to act. What was observed a step before knows nothing of it: there an adversary looks for what the policy leaves over of
the actions, and the policy leaves it nothing to find.
"""

from typing import Any

from gymnasium.spaces import Box
from torch import Tensor

from rlrun.config.schema import NonNegativeFloat, PositiveFloat, config
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.losses import weighted_mean
from rlrun.nested import index
from rlrun.networks.heads import Head
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "causal_bc")
class CausalBC(Agent):
    actions = Box

    @config
    class Config:
        learning_rate: PositiveFloat
        adversary_learning_rate: PositiveFloat
        cloning_coef: NonNegativeFloat
        norm_coef: NonNegativeFloat

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.sequence_length = 2  # an observation, and the one before
        self.actor = Head(parts.torso(), spec.action.shape[0])
        self.adversary = Head(parts.torso(), spec.action.shape[0])
        self.actor_optim = Optim(self.actor.parameters(), cfg.learning_rate)
        self.adversary_optim = Optim(self.adversary.parameters(), cfg.adversary_learning_rate)

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        return self.actor(obs), {}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """batch [2, batch, ...]; nothing is learned where an episode begins with the second step."""
        return self.update_adversary(batch) | self.update_actor(batch)

    def residual(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """What the policy leaves over of an action and what the adversary says of it, [batch, actions]; weights."""
        before, now = (index(batch["obs"], step) for step in (0, 1))
        return batch["action"][1] - self.actor(now), self.adversary(before), batch["mask"][1] * batch["weight"]

    @kernel
    def update_adversary(self, batch: Batch) -> Metrics:
        left, said, weight = self.residual(batch)
        gain = (2 * left.detach() * said - said**2).sum(-1)
        loss = weighted_mean(self.cfg.norm_coef * norm(said) - gain, weight)
        self.adversary_optim.step(loss)
        return {"adversary": loss.detach()}

    @kernel
    def update_actor(self, batch: Batch) -> Metrics:
        left, said, weight = self.residual(batch)
        loss = weighted_mean((2 * left * said.detach() + self.cfg.cloning_coef * left**2).sum(-1), weight)
        self.actor_optim.step(loss)
        return {"actor": loss.detach(), "residual": weighted_mean((left.detach() ** 2).sum(-1), weight)}


def norm(x: Tensor) -> Tensor:
    """Of each row, with a gradient at 0."""
    return ((x**2).sum(-1) + 1e-12).sqrt()
