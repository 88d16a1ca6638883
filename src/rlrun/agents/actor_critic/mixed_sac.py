"""Soft actor-critic for one discrete choice beside continuous values, as in the Agent Learning Framework (ALF).

The actor pi_c draws the continuous values a_c. The critics have one output per choice, Q_k(s, a_c), and the choice is
drawn from p = softmax(Q(s, a_c) / alpha_d), so it needs no network of its own. Choice and values belong together: p
holds only for the values that it was computed from. Expectations over the choice are exact sums.
"""

from collections.abc import Iterator
from typing import Any

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import Critic, Reduce
from rlrun.agents.critics.expected import ExpectedReturn
from rlrun.agents.entropy.coefficient import default_target
from rlrun.core.agent import policy
from rlrun.core.parts import Parts
from rlrun.functional.distributions import Categorical
from rlrun.networks.choices import legal
from rlrun.networks.heads import ActionValues, SquashedGaussianPolicy, of_action
from rlrun.settings import register
from rlrun.spaces import MixedSpace
from rlrun.types import Batch, Spec


@register("mixed_algo", "sac")
class MixedSAC(SAC):
    """SAC for mixed actions with one choice. Every component of the action has a temperature of its own."""

    actions = MixedSpace  # type: ignore[assignment]  # SAC declares Box actions
    critics = ExpectedReturn  # expectations over the choice are sums of numbers
    acts_with = ("actor", "critic", "ensemble", "entropy")  # type: ignore[assignment]

    @classmethod
    def lacks(cls, spec: Spec) -> Iterator[tuple[str, object]]:
        if isinstance(spec.action, MixedSpace) and spec.action.num_choices > 1:
            yield "at most one discrete choice in an action (algo=ppo takes any number)", spec.shown_action
        yield from super().lacks(spec)

    def networks(self, parts: Parts, columns: int = 1) -> tuple[nn.Module, nn.Module, dict[str, float]]:
        """Returns the actor, the critics, and the default target entropy of every component.

        It is minus the number of dimensions of continuous values, and `default_target` of the choice.
        """
        space = self.spec.action
        targets: dict[str, float] = {}
        self.sizes: list[int] = []  # number of dimensions of every continuous component
        for name, part in space.parts.items():
            if isinstance(part, Box):
                targets[name] = -float(part.shape[0])
                self.sizes.append(part.shape[0])
            else:
                targets[name] = default_target(part)
        actor = SquashedGaussianPolicy(parts.torso("actor"), sum(self.sizes))
        torso = parts.torso("critic", inputs=("obs", space.continuous), members=self.ensemble.members)
        num_choices = int(space.discrete.nvec[0])
        critic = ActionValues(torso, num_choices, self.ensemble.members, self.ensemble.shape)
        return actor, critic, targets

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            continuous = dist.mode()
            choice = self.choice(obs, continuous).mode()
        else:
            continuous, _ = dist.sample(dist.noise(self.act_noise))
            choices = self.choice(obs, continuous)
            choice = choices.sample(choices.noise(self.act_noise))
        return torch.cat([choice.unsqueeze(-1), continuous], -1), {}

    def choice(self, obs: Any, continuous: Tensor) -> Categorical:
        """Returns p = softmax(Q(s, a_c) / alpha_d) over the legal choices; continuous values a_c [batch, dims]."""
        q = self.ensemble.actor(self.critic(obs, continuous))
        return Categorical(legal(q / self.entropy.temperature[0], obs))

    def stored_values(self, batch: Batch) -> Tensor:
        choice, continuous = batch["action"][:, 0], batch["action"][:, 1:]
        z = self.critic(batch["obs"], continuous)  # [members, batch, choices, ...]
        return of_action(z, choice.long())

    def evaluate(self, obs: Any, critic: Critic, reduce: Reduce, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns sum_k p_k Q_k(s, a_c) for sampled continuous values a_c, [batch], and the log-probability of every
        component, [batch, components]; that of the choice is its expectation, minus the entropy of p.

        No gradient flows to p.
        """
        continuous, log_prob = self.actor(obs).sample_parts(noise[:, 1:], self.sizes)
        with torch.no_grad():
            choice = self.choice(obs, continuous)
            p = choice.logits.softmax(-1)
            negative_entropy = -choice.entropy().unsqueeze(-1)
        q = reduce(critic(obs, continuous))  # [batch, choices]
        return (p * q).sum(-1), torch.cat([negative_entropy, log_prob], -1)
