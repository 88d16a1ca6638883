"""SAC with a KL penalty towards a prior policy pi0, in place of the entropy bonus.

Everywhere in SAC, log pi - log pi0 takes the place of log pi, so the temperature keeps KL(pi || pi0) near its target.
With a uniform prior this is SAC. A prior may depend on the previous action; the actor then needs this action too, and
receives it beside the observation.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.agents.actor_critic.priors import Prior
from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import Critic, QFunction
from rlrun.core.agent import policy
from rlrun.core.parts import Parts
from rlrun.core.previous import remembered
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Distribution
from rlrun.networks.heads import SquashedGaussianPolicy
from rlrun.settings import Part, PositiveFloat, config, register
from rlrun.types import Batch, Obs, Spec


class Seen(NamedTuple):
    """An observation with the action before it."""

    obs: Obs
    previous: Tensor  # [batch, dims]; 0 at the first timestep of an episode
    first: Tensor  # [batch]; 1 at the first timestep of an episode


@register("algo", "kl_sac")
class KLSAC(SAC):
    """KL-regularised SAC."""

    actions = Box  # priors are densities of continuous actions
    reads_previous = ("action",)
    remembers = False  # replayed sequences of a recurrent network hold no previous actions
    cfg: "Config"

    @config
    class Config(SAC.Config):
        target_kld_per_dim: PositiveFloat
        prior: Annotated[dict[str, object], Part("prior")]

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        if self.num_next_steps:
            raise ConfigError(
                "algo.entropy_reward=every_step: not supported by kl_sac, which has no priors of the steps within an "
                "n-step return; choose bootstrap"
            )
        self.prior = parts.part("prior", cfg.prior, Prior)
        flag = Box(0.0, 1.0, (), np.float32)
        self.stores = {"previous_action": spec.action, "carry.action": spec.action, "is_first": flag}

    def networks(self, parts: Parts) -> tuple[nn.Module, nn.Module, float]:
        """Returns the actor, the critics, and the default target of -KL(pi || pi0)."""
        dims = self.spec.action.shape[0]
        actor = SquashedGaussianPolicy(parts.torso("actor", inputs=("obs", "action")), dims)
        return actor, self.ensemble.network(parts), -self.cfg.target_kld_per_dim * dims

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        previous = self.previous(carry)
        dist = self.actor(obs, previous)
        if not explore:
            return dist.mode(), {}
        action, _ = dist.sample(dist.noise(self.act_noise))
        action, extras = self.noise.add(action, carry, self.act_noise)
        return action, extras | self.prior_extras(carry)

    def action_distribution(self, obs: Obs, carry: Batch) -> Distribution:
        dist: Distribution = self.actor(obs, self.previous(carry))
        return dist

    def previous(self, carry: Batch) -> Tensor:
        """Returns the previous actions, [num_envs, dims]."""
        first = carry["first"]
        zeros = first.new_zeros(first.shape[0], self.spec.action.shape[0]).float()
        return remembered(carry, "action", zeros)

    def prior_extras(self, carry: Batch) -> Batch:
        """Returns the extras from which updates compute the prior."""
        return {"previous_action": self.previous(carry), "is_first": carry["first"].float()}

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        seen: Any = Seen(batch["next_obs"], batch["carry.action"], torch.zeros_like(batch["is_first"]))
        return super().target_q(batch | {"next_obs": seen}, noise, target_critic)

    def actor_q(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        seen: Any = Seen(batch["obs"], batch["previous_action"], batch["is_first"])
        return super().actor_q(batch | {"obs": seen}, noise)

    def evaluate(self, obs: Any, q: QFunction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the Q-value of a sampled action, and log pi - log pi0; both [batch].

        obs: an observation as `Seen`.
        """
        action, log_prob = self.actor(obs.obs, obs.previous).sample(noise)
        log_prior = self.prior.log_prob(action, obs.previous, obs.first)
        return q(obs.obs, action), log_prob - log_prior

    def warm_up(self, action: Tensor, carry: Batch) -> tuple[Tensor, Batch]:
        return action, self.prior_extras(carry)
