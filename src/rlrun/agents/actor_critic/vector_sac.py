"""Soft actor-critic for reward vectors: the critics have one value for each reward and, last, one for the entropy.

The values do not depend on the weights of the rewards, which may change; the actor maximises the weighted sum.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.agents.actor_critic.discrete_sac import DiscreteActions
from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import Critic, Reduce
from rlrun.agents.imitation.sac_cloning import Cloning
from rlrun.config.schema import config
from rlrun.core.parts import Parts
from rlrun.registry import register
from rlrun.types import Batch, Spec


def pessimistic(reduce: Reduce, weights: Tensor) -> Reduce:
    """A reduction by the minimum that takes the maximum over members where a reward has a negative weight.

    weights: [rewards]; values: [members, ..., rewards].
    """
    sign = torch.where(weights < 0, -1.0, 1.0)
    return lambda q: sign * reduce(sign * q)


class RewardVectors:
    """Values and targets of reward vectors, over SAC or a variant of it.

    `batch["reward"]` is [batch, rewards], `batch["reward_weights"]` [rewards].
    """

    reward_vectors = True
    spec: Spec
    cfg: Any
    ensemble: Any
    entropy: Any
    critic: Any
    evaluate: Callable[..., tuple[Tensor, Tensor]]

    def networks(self, parts: Parts) -> tuple[nn.Module, nn.Module, float]:
        networks: tuple[nn.Module, nn.Module, float] = super().networks(  # type: ignore[misc]  # of SAC, behind this
            parts, self.spec.reward_dim + 1
        )
        return networks

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        """[batch, rewards + 1]: the entropy is a further reward of the next step, with a weight of 1."""
        reduce = pessimistic(self.ensemble.target, column_weights(batch))
        next_q, next_log_prob = self.evaluate(batch["next_obs"], target_critic, reduce, noise)
        reward = F.pad(batch["reward"], (0, 1))
        entropy_cost = F.pad(next_log_prob.unsqueeze(-1), (self.spec.reward_dim, 0))
        discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
        return reward + discount.unsqueeze(-1) * (next_q - self.entropy.alpha * entropy_cost)

    def actor_q(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        weights = column_weights(batch)
        q, log_prob = self.evaluate(batch["obs"], self.critic, pessimistic(self.ensemble.actor, weights), noise)
        return q @ weights, log_prob

    def stored_q(self, batch: Batch) -> Tensor:
        """The pessimistic value of the stored action, for cloning, [batch]."""
        weights = column_weights(batch)
        q = self.critic(batch["obs"], batch["action"])
        return pessimistic(lambda q: q.amin(0), weights)(q) @ weights


def column_weights(batch: Batch) -> Tensor:
    """Weights of the columns of the critics, [rewards + 1]: those of the rewards, and 1 for the entropy."""
    return F.pad(batch["reward_weights"], (0, 1), value=1.0)


@register("vector_algo", "sac")
class VectorSAC(RewardVectors, SAC):  # type: ignore[misc]  # networks take no columns
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
