"""Soft actor-critic for reward vectors: the critics hold one value for each reward and, last, one for the entropy.

Every value is learned without the weights of the rewards, which may change; the actor maximises the weighted sum.
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
    """A minimum over members that becomes their maximum where a reward has a negative weight.

    weights: [rewards]; values: [members, ..., rewards].
    """
    sign = torch.where(weights < 0, -1.0, 1.0)
    return lambda q: sign * reduce(sign * q)


class RewardVectors:
    """What differs from SAC; `batch["reward"]` is [batch, rewards], `batch["reward_weights"]` [rewards]."""

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
        """For cloning: the pessimistic value of the stored action, [batch]."""
        weights = column_weights(batch)
        q = self.critic(batch["obs"], batch["action"])
        return pessimistic(lambda q: q.amin(0), weights)(q) @ weights


def column_weights(batch: Batch) -> Tensor:
    """[rewards + 1]: those of the rewards, and 1 of the entropy."""
    return F.pad(batch["reward_weights"], (0, 1), value=1.0)


@register("vector_algo", "sac")
class VectorSAC(RewardVectors, SAC):  # type: ignore[misc]  # networks take no columns
    pass


@register("vector_algo", "discrete_sac")
class VectorDiscreteSAC(RewardVectors, DiscreteActions, SAC):  # type: ignore[misc]  # likewise
    pass


@register("vector_algo", "sac_cloning")
class VectorSACCloning(RewardVectors, Cloning, SAC):  # type: ignore[misc]  # likewise
    @config
    class Config(Cloning.Config):
        pass
