"""Soft actor-critic over discrete actions (Christodoulou 2019, arXiv 1910.07207).

SAC whose critics have a value for every action, so that expectations over the policy are sums and nothing is sampled.
"""

import math
from typing import Any, ClassVar

from gymnasium import Space
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import Critic, Reduce
from rlrun.core.agent import policy
from rlrun.core.parts import Parts
from rlrun.networks.heads import DiscreteCritic, DiscretePolicy
from rlrun.registry import register
from rlrun.types import Batch, Spec


class DiscreteActions:
    """What differs from SAC."""

    actions: ClassVar[type[Space] | tuple[type[Space], ...]] = Discrete
    needs_bounds = False
    spec: Spec
    ensemble: Any
    actor: Any
    act_noise: Any

    def networks(self, parts: Parts, columns: int = 1) -> tuple[nn.Module, nn.Module, float]:
        """The target entropy is 0.98 of the largest."""
        n, members = int(self.spec.action.n), self.ensemble.members
        critic = DiscreteCritic(parts.torso("critic", members=members), n, members, columns)
        return DiscretePolicy(parts.torso("actor"), self.spec.action), critic, 0.98 * math.log(n)

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            return dist.mode(), {}
        return dist.sample(dist.noise(self.act_noise)), {}

    def evaluate(self, obs: Any, critic: Critic, reduce: Reduce, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The expected Q-value of the policy, and minus its entropy; [batch]."""
        dist = self.actor(obs)
        q = reduce(critic(obs))  # [batch, actions], or [batch, actions, columns]
        probability = dist.logits.softmax(-1)
        if q.dim() > probability.dim():
            probability = probability.unsqueeze(-1)
        return (q * probability).sum(1), -dist.entropy()


@register("algo", "discrete_sac")
class DiscreteSAC(DiscreteActions, SAC):  # type: ignore[misc]  # actions are not those of SAC
    pass
