"""Soft actor-critic over discrete actions (Christodoulou 2019, arXiv 1910.07207).

SAC whose critics have a value for every action, so that expectations over the policy are sums and nothing is sampled.
"""

import math
from collections.abc import Callable
from typing import Any

from gymnasium.spaces import Discrete
from torch import Tensor, nn

from rlrun.agents.actor_critic.columns import Join
from rlrun.agents.actor_critic.sac import SAC
from rlrun.core.agent import policy
from rlrun.networks.heads import DiscretePolicy, Head
from rlrun.registry import register
from rlrun.types import Batch


@register("algo", "discrete_sac")
class DiscreteSAC(SAC):
    actions = Discrete
    needs_bounds = False

    def networks(self, parts: Any) -> tuple[nn.Module, nn.Module, float]:
        actions, members = int(self.spec.action.n), self.cfg.members
        critic = Head(parts.torso("critic", members=members), actions * self.columns, members)
        return DiscretePolicy(parts.torso("actor"), self.spec.action), critic, 0.98 * math.log(actions)

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        obs, extras = self.memory.advanced(obs)
        dist = self.actor(obs)
        return (dist.sample(dist.noise(self.act_noise)) if explore else dist.mode()), extras

    def q(self, batch: Batch) -> Tensor:
        q = self.each(self.critic(batch["obs"]))
        action = batch["action"][None, :, None]
        return q.take_along_dim(action if self.columns == 1 else action.unsqueeze(-1), 2).squeeze(2)

    def each(self, q: Tensor) -> Tensor:
        """[members, batch, actions], or [members, batch, actions, columns]."""
        return q if self.columns == 1 else q.unflatten(-1, (-1, self.columns))

    def evaluate(self, obs: Any, critic: Callable[..., Tensor], noise: Tensor, over: Join) -> tuple[Tensor, Tensor]:
        dist = self.actor(obs)
        value, probability = over(self.each(critic(obs))), dist.logits.softmax(-1)
        return (value * (probability if self.columns == 1 else probability.unsqueeze(-1))).sum(1), -dist.entropy()
