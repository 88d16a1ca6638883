"""Base class of actor-critics that learn Q(s, a) from replay: SAC, TD3 and their variants."""

from typing import Annotated, Any, ClassVar

import torch
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.agents.actor_critic.action_gradients import ActionGradient
from rlrun.agents.critics.ensemble import Critic, Ensemble
from rlrun.agents.critics.reward_columns import critic_ensemble
from rlrun.agents.noise.action_noise import ActionNoise
from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.settings import NStepReturns, Part, PositiveFloat, PositiveFraction, PositiveInt, Scheduled, config
from rlrun.types import Batch, Metrics, Obs, Spec


class ActorCritic(Agent):
    """An actor, an ensemble of critics with target networks, and exploration noise.

    A subclass builds the networks and their optimisers. It implements `act`, `update`, the targets of the critics and
    the update of the actor.
    """

    actions: ClassVar[type[Space]] = Box
    acts_with: ClassVar[tuple[str, ...]] = ("actor", "noise")
    needs_bounds = True
    remembers = True
    reward_vectors = True
    reward_discounts = True
    entropy_column: ClassVar[bool] = False  # whether critics of reward vectors have a column for the entropy
    critics: ClassVar[type[Ensemble]] = Ensemble  # kinds of `algo.critic` that the algorithm supports

    actor: Any
    critic: Any
    target_critic: Target
    critic_optim: Optim

    @config
    class Config(NStepReturns):
        tau: PositiveFraction
        policy_delay: PositiveInt
        actor_learning_rate: Scheduled[PositiveFloat]
        critic_learning_rate: Scheduled[PositiveFloat]
        critic: Annotated[dict[str, object], Part("critic")]
        action_gradient: Annotated[dict[str, object], Part("action_gradient")]
        noise: Annotated[dict[str, object], Part("noise")]

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.ensemble = critic_ensemble(parts, cfg.critic, self.critics, spec, self.entropy_column)
        self.action_gradient = parts.part("action_gradient", cfg.action_gradient, ActionGradient, spec)
        self.noise = parts.part("noise", cfg.noise, ActionNoise, spec)
        self.act_noise = parts.stream("act")
        self.update_noise = parts.stream("update")

    @kernel
    def update_critic(self, batch: Batch, noise: Tensor, members: Tensor | None = None) -> tuple[Metrics, Tensor]:
        """Returns metrics and priorities, [batch].

        noise [batch, actions]: of the next actions. members: indices of the critics that compute the target.
        """
        with torch.no_grad():
            target_q = self.target_q(batch, noise, self.target_critic.select(members))
        z = self.critic(batch["obs"], batch["action"])  # [members, batch, ...]
        critic_loss, metrics, priority = self.ensemble.regress(z, target_q, batch["weight"])
        self.critic_optim.step(critic_loss)
        return metrics, priority

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        """Returns the target that the critics learn, as `Ensemble.backup` does."""
        raise NotImplementedError

    def action_values(self, obs: Obs, action: Tensor) -> Tensor:
        z = self.critic(obs, action)
        return self.ensemble.value(z).mean(0)
