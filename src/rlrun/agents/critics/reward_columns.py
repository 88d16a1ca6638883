"""Critics of reward vectors: every member predicts a return for each reward and, in soft actor-critic, for the entropy.

Targets are pessimistic about the weighted sum of the returns, and use only the signs of `reward_weights`, so the
weights may change during training. The actor maximises the weighted sum.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.agents.critics.ensemble import Ensemble, Members
from rlrun.core.parts import Parts
from rlrun.core.state import RunningMoments
from rlrun.functional.distributions import Categorical
from rlrun.types import Batch, Spec


class RewardColumns(Ensemble):
    """An ensemble whose predictions have a dimension of reward columns, [members, batch, columns, *shape].

    With `entropy`, a last column treats the entropy bonus as an additional reward, whose weight is 1. Its discount is
    that of the algorithm. The rewards have the same discount, or those of `discounts`.
    """

    discounts: Tensor | None

    def __init__(self, ensemble: Ensemble, num_rewards: int, entropy: bool, discounts: tuple[float, ...] = ()):
        super().__init__(Members(members=ensemble.members, target_members=ensemble.target_members))
        self.ensemble = ensemble
        self.num_rewards = num_rewards
        self.entropy = entropy
        self.register_buffer("discounts", None, persistent=False)
        if discounts:
            self.discounts = torch.tensor(discounts)
        num_columns = num_rewards + int(entropy)
        self.shape = (num_columns, *ensemble.shape)
        if ensemble.moments is not None:
            self.moments = RunningMoments((num_columns,))

    def value(self, z: Tensor) -> Tensor:
        return self.ensemble.value(z)

    def target_return(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        return self.ensemble.target_return(z, self.column_weights(weights))

    def actor_value(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        column_weights = self.column_weights(weights)
        values = self.ensemble.actor_value(z, column_weights)
        return values @ column_weights

    def total(self, values: Tensor, weights: Tensor | None) -> Tensor:
        return values @ self.column_weights(weights)

    def discount(self, gamma: float, batch: Batch) -> Tensor:
        if self.discounts is None:
            return super().discount(gamma, batch)
        gammas = self.discounts
        if self.entropy:
            gammas = F.pad(gammas, (0, 1), value=gamma)
        n_steps = batch["n_steps"].unsqueeze(-1)
        return gammas**n_steps * (1 - batch["terminated"].unsqueeze(-1))

    def backup(self, returns: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        if discount.dim() < reward.dim():
            discount = discount.unsqueeze(-1)
        if cost is not None:  # the last column has reward 0 and the cost; all other columns have cost 0
            reward = F.pad(reward, (0, 1))
            cost = F.pad(cost.unsqueeze(-1), (self.num_rewards, 0))
        return self.ensemble.backup(returns, reward, discount, cost)

    def loss(self, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return self.ensemble.loss(z, target)

    def column_weights(self, weights: Tensor | None) -> Tensor:
        """Returns the weights of all columns, [columns], for the `reward_weights` [rewards] of a batch."""
        assert weights is not None
        if not self.entropy:
            return weights
        return F.pad(weights, (0, 1), value=1.0)


class ActingWeights(nn.Module):
    """The reward weights by which an agent acts: those of its last update, and at first those of the objective.

    `values` is [rewards], or None for a single reward.
    """

    values: Tensor | None

    def __init__(self, spec: Spec):
        super().__init__()
        weights = None
        if spec.objective is not None:
            weights = torch.tensor(spec.objective.weights)
        self.register_buffer("values", weights)

    def follow(self, batch: Batch) -> None:
        """Takes the weights of a batch."""
        if self.values is not None:
            self.values.copy_(batch["reward_weights"])


def expectation(dist: Categorical, values: Tensor) -> Tensor:
    """Returns the expected value under a distribution over actions; values [batch, actions] -> [batch], or
    [batch, actions, columns] -> [batch, columns]."""
    probability = dist.logits.softmax(-1)
    if values.dim() > probability.dim():
        probability = probability.unsqueeze(-1)
    return (values * probability).sum(1)


def critic_ensemble(
    parts: Parts, values: dict[str, object], kind: type[Ensemble], spec: Spec, entropy: bool = False
) -> Ensemble:
    """Returns the part `algo.critic` of an agent, with reward columns if the environment returns reward vectors.

    kind: class of the critics that the agent supports. entropy: whether a further column is for the entropy.
    """
    return with_reward_columns(parts.part("critic", values, kind), spec, entropy)


def with_reward_columns(ensemble: Ensemble, spec: Spec, entropy: bool = False) -> Ensemble:
    """Returns the ensemble, with reward columns if the environment returns reward vectors. entropy: see above."""
    if spec.reward_dim == 1:
        return ensemble
    return RewardColumns(ensemble, spec.reward_dim, entropy, spec.discounts)
