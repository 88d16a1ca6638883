"""Soft actor-critic over discrete actions (Christodoulou 2019, arXiv 1910.07207).

The critics return a Q-value for every action, so expectations over the policy are exact sums instead of samples.
"""

from typing import Any, ClassVar

from gymnasium import Space
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import Ensemble, QFunction
from rlrun.agents.critics.expected import ExpectedReturn
from rlrun.agents.entropy.coefficient import nearly_uniform
from rlrun.core.agent import policy
from rlrun.core.parts import Parts
from rlrun.networks.heads import DiscreteCritic, DiscretePolicy, in_columns
from rlrun.settings import register
from rlrun.types import Batch, Spec


class DiscreteActions:
    """A mixin that gives SAC, or a variant of SAC, the networks and the policy expectations of discrete actions."""

    actions: ClassVar[type[Space] | tuple[type[Space], ...]] = Discrete
    critics: ClassVar[type[Ensemble]] = ExpectedReturn  # expectations over the policy are sums of numbers
    needs_bounds = False
    spec: Spec
    ensemble: Any
    actor: Any
    act_noise: Any

    def networks(self, parts: Parts, columns: int = 1) -> tuple[nn.Module, nn.Module, float]:
        """Returns the actor, the critics, and the default target entropy, which is 0.98 times the maximum entropy.

        columns: the number of reward components, each of which has its own Q-values.
        """
        n = int(self.spec.action.n)
        members = self.ensemble.members
        shape = in_columns(columns, self.ensemble.shape)
        critic = DiscreteCritic(parts.torso("critic", members=members), n, members, shape)
        actor = DiscretePolicy(parts.torso("actor"), self.spec.action)
        return actor, critic, nearly_uniform(self.spec.action)

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            return dist.mode(), {}
        return dist.sample(dist.noise(self.act_noise)), {}

    def evaluate(self, obs: Any, q: QFunction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the expected Q-value under the policy, [batch] or [batch, reward components], and the negative
        entropy of the policy, [batch]."""
        dist = self.actor(obs)
        values = q(obs)  # [batch, actions] or [batch, actions, reward components]
        probability = dist.logits.softmax(-1)
        if values.dim() > probability.dim():
            probability = probability.unsqueeze(-1)
        return (values * probability).sum(1), -dist.entropy()


@register("algo", "discrete_sac")
class DiscreteSAC(DiscreteActions, SAC):  # type: ignore[misc]  # SAC declares Box actions
    """SAC for discrete actions."""
