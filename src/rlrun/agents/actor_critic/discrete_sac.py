"""Soft actor-critic over discrete actions (Christodoulou 2019, arXiv 1910.07207).

The critics return a Q-value for every action, so expectations over the policy are exact sums instead of samples.
"""

from gymnasium.spaces import Discrete
from torch import Tensor, nn

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import QFunction
from rlrun.agents.critics.expected import ExpectedReturn
from rlrun.agents.critics.reward_columns import expectation
from rlrun.agents.entropy.coefficient import nearly_uniform
from rlrun.core.agent import policy
from rlrun.core.parts import Parts
from rlrun.networks.heads import DiscreteCritic, DiscretePolicy
from rlrun.settings import register
from rlrun.types import Batch, Obs


@register("algo", "discrete_sac")
class DiscreteSAC(SAC):
    """SAC for discrete actions."""

    actions = Discrete
    critics = ExpectedReturn  # expectations over the policy are sums of numbers
    needs_bounds = False

    def networks(self, parts: Parts) -> tuple[nn.Module, nn.Module, float]:
        """Returns the actor, the critics, and the default target entropy, which is 0.98 times the maximum entropy."""
        n = int(self.spec.action.n)
        members = self.ensemble.members
        critic = DiscreteCritic(parts.torso("critic", members=members), n, members, self.ensemble.shape)
        actor = DiscretePolicy(parts.torso("actor"), self.spec.action)
        return actor, critic, nearly_uniform(self.spec.action)

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            return dist.mode(), {}
        return dist.sample(dist.noise(self.act_noise)), {}

    def action_values(self, obs: Obs, action: Tensor) -> Tensor:
        z = self.critic(obs)
        return self.ensemble.value(z).mean(0)

    def evaluate(self, obs: Obs, q: QFunction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the expected Q-value under the policy, [batch] or [batch, reward columns], and the negative entropy
        of the policy, [batch]."""
        dist = self.actor(obs)
        return expectation(dist, q(obs)), -dist.entropy()
