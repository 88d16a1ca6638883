"""Soft actor-critic for one discrete choice beside continuous values, as in the Agent Learning Framework (ALF).

The actor pi_c draws the continuous values a_c. The critics have one output per choice, Q_k(s, a_c), and the choice is
drawn from p = softmax(Q(s, a_c) / alpha_d), so it needs no network of its own. Choice and values belong together: p
holds only for the values that it was computed from. Expectations over the choice are exact sums.
"""

from collections.abc import Iterator

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import QFunction
from rlrun.agents.critics.expected import ExpectedReturn
from rlrun.agents.entropy.coefficient import default_target
from rlrun.core.agent import policy
from rlrun.core.parts import Parts
from rlrun.functional.distributions import Categorical
from rlrun.networks.choices import legal
from rlrun.networks.heads import ActionValues, SquashedGaussianPolicy, gather_action
from rlrun.settings import register
from rlrun.spaces import MixedSpace
from rlrun.types import Batch, Obs, Spec


class MixedCritic(ActionValues):
    """Q_k(s, a_c) of every choice k for continuous values a_c [batch, dims]: [members, batch, choices, *shape].

    For a whole action [batch, 1 + dims], whose first number is the choice, it returns only the predictions for this
    choice, [members, batch, *shape].
    """

    def __init__(self, torso: nn.Module, space: MixedSpace, members: int, shape: tuple[int, ...]):
        super().__init__(torso, int(space.discrete.nvec[0]), members, shape)
        self.dims = space.continuous.shape[0]

    def forward(self, obs: Obs, action: Tensor) -> Tensor:  # type: ignore[override]
        if action.shape[1] == self.dims:
            return super().forward(obs, action)
        z = super().forward(obs, action[:, 1:])
        return gather_action(z, action[:, 0].long())


@register("mixed_algo", "sac")
class MixedSAC(SAC):
    """SAC for mixed actions with one choice. Every component of the action has a temperature of its own."""

    actions = MixedSpace
    reward_vectors = False
    critics = ExpectedReturn  # expectations over the choice are sums of numbers
    acts_with = ("actor", "critic", "ensemble", "entropy")

    def networks(self, parts: Parts) -> tuple[nn.Module, nn.Module, dict[str, float]]:
        """Returns the actor, the critics, and the default target entropy of every component.

        The target of continuous values is minus their number; that of the choice is `default_target`.
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
        return actor, MixedCritic(torso, space, self.ensemble.members, self.ensemble.shape), targets

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            continuous = dist.mode()
            choice = self.choice(obs, continuous).mode()
        else:
            continuous, _ = dist.sample(dist.noise(self.act_noise))
            choice_dist = self.choice(obs, continuous)
            choice = choice_dist.sample(choice_dist.noise(self.act_noise))
        return torch.cat([choice.unsqueeze(-1), continuous], -1), {}

    def choice(self, obs: Obs, continuous: Tensor) -> Categorical:
        """Returns p = softmax(Q(s, a_c) / alpha_d) over the legal choices; continuous values a_c [batch, dims]."""
        z = self.critic(obs, continuous)
        q = self.ensemble.actor_value(z)
        return Categorical(legal(q / self.entropy.temperature[0], obs))

    def evaluate(self, obs: Obs, q: QFunction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns sum_k p_k Q_k(s, a_c) for sampled continuous values a_c, [batch], and the log-probability of every
        component, [batch, components].

        The log-probability of the choice is its expectation over p, minus the entropy of p. No gradient flows to p.
        """
        continuous, log_prob = self.actor(obs).sample_parts(noise[:, 1:], self.sizes)
        with torch.no_grad():
            choice = self.choice(obs, continuous)
            p = choice.logits.softmax(-1)
            negative_entropy = -choice.entropy().unsqueeze(-1)
        value = (p * q(obs, continuous)).sum(-1)
        log_probs = torch.cat([negative_entropy, log_prob], -1)
        return value, log_probs

    def action_distribution(self, obs: Obs, carry: Batch) -> None:
        return None  # that of the choice depends on the continuous values

    @classmethod
    def lacks(cls, spec: Spec) -> Iterator[tuple[str, object]]:
        if isinstance(spec.action, MixedSpace) and spec.action.num_choices > 1:
            yield "at most one discrete choice in an action (algo=ppo takes any number)", spec.shown_action
        yield from super().lacks(spec)
