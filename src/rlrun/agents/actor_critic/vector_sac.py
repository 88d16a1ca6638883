"""Soft actor-critic for reward vectors: the critics have one value column per reward, and a last one for the entropy.

The actor maximises the sum of the values, weighted by `reward_weights`. The targets use only the signs of these
weights, so the weights may change during training.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.agents.actor_critic.discrete_sac import DiscreteActions
from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import Critic, reduced
from rlrun.agents.imitation.sac_cloning import Cloning
from rlrun.core.parts import Parts
from rlrun.settings import config, register
from rlrun.types import Batch, Spec


def signs(weights: Tensor) -> Tensor:
    """Returns -1 for negative weights, else 1; [columns]. Targets are pessimistic about the weighted sum."""
    return torch.where(weights < 0, -1.0, 1.0)


class RewardVectors:
    """A mixin that gives SAC, or a variant of SAC, critics and targets for reward vectors.

    `batch["reward"]` is [batch, rewards], and `batch["reward_weights"]` is [rewards].
    """

    reward_vectors = True
    spec: Spec
    cfg: Any
    ensemble: Any
    entropy: Any
    entropy_reward: Any
    action_gradient: Any
    critic: Any
    evaluate: Callable[..., tuple[Tensor, Tensor]]

    def networks(self, parts: Parts) -> tuple[nn.Module, nn.Module, float]:
        networks: tuple[nn.Module, nn.Module, float] = super().networks(  # type: ignore[misc]  # a mixin: SAC is next
            parts, self.spec.reward_dim + 1
        )
        return networks

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        """Returns the targets, [batch, rewards + 1].

        The last column treats the entropy bonus of the next step as an additional reward, whose weight is 1.
        """
        reduce = partial(self.ensemble.target, sign=signs(column_weights(batch)))
        next_q, next_log_prob = self.evaluate(batch["next_obs"], reduced(target_critic, reduce), noise)
        reward = F.pad(batch["reward"], (0, 1))
        cost = self.entropy_reward.cost(next_log_prob, batch["weight"], self.entropy)
        entropy_cost = F.pad(cost.unsqueeze(-1), (self.spec.reward_dim, 0))
        discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
        return self.ensemble.backup(next_q, reward, discount.unsqueeze(-1), entropy_cost)

    def actor_q(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        weights = column_weights(batch)
        reduce = partial(self.ensemble.actor, sign=signs(weights))
        actor_q = reduced(self.critic, lambda z: reduce(z) @ weights)
        return self.evaluate(batch["obs"], self.action_gradient.along(actor_q), noise)

    def stored_q(self, batch: Batch) -> Tensor:
        """Returns the pessimistic weighted value of the stored action, [batch]; the filter of cloning uses it."""
        weights = column_weights(batch)
        z = self.critic(batch["obs"], batch["action"])
        return self.ensemble.actor(z, signs(weights)) @ weights


def column_weights(batch: Batch) -> Tensor:
    """Returns the weights of the critic columns, [rewards + 1]: the reward weights, then 1 for the entropy."""
    return F.pad(batch["reward_weights"], (0, 1), value=1.0)


@register("vector_algo", "sac")
class VectorSAC(RewardVectors, SAC):  # type: ignore[misc]  # `networks` lacks the parameter `columns`
    """SAC for reward vectors."""


@register("vector_algo", "discrete_sac")
class VectorDiscreteSAC(RewardVectors, DiscreteActions, SAC):  # type: ignore[misc]  # likewise
    """SAC for reward vectors and discrete actions."""


@register("vector_algo", "sac_cloning")
class VectorSACCloning(RewardVectors, Cloning, SAC):  # type: ignore[misc]  # likewise
    """SAC for reward vectors that clones demonstrations."""

    @config
    class Config(Cloning.Config):
        pass
