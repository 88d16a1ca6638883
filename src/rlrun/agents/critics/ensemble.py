"""The contract of critics: what the members of an ensemble predict, and how their predictions are reduced to one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.core.parts import Parts
from rlrun.core.random import Stream
from rlrun.core.state import RunningMoments
from rlrun.errors import ConfigError
from rlrun.functional.losses import batch_mean, sum_over_members
from rlrun.functional.priorities import of_ensemble
from rlrun.networks.heads import Value
from rlrun.settings import Units, config
from rlrun.types import Batch, Metrics

Critic = Callable[..., Tensor]  # (obs, action) -> predictions [members, batch, ...]
Reduce = Callable[[Tensor], Tensor]  # predictions [members, ...] -> one return, or one distribution of returns, [...]
QFunction = Callable[..., Tensor]  # (obs, action) -> predictions reduced over the members, [batch, ...]

EPSILON = 1e-8  # added to the variance of targets


@config
class Members:
    """Hyperparameters of every ensemble of critics."""

    members: Units
    target_members: Units | None


class Ensemble(nn.Module):
    """What the members predict, and how their predictions are reduced.

    A prediction z is the output of a critic, [members, batch, *shape]. It has further dimensions between batch and
    shape if there are several actions or reward columns. A *return* is a number [...], or the distribution of the
    return [..., n]: its quantiles, or its probabilities. An agent computes a TD target in three steps:

        next_return = ensemble.target_return(next_z)                     reduces the members
        target = ensemble.backup(next_return, reward, discount, cost)    applies the Bellman operator
        loss, metrics, priority = ensemble.regress(z, target, weight)

    With `target_members`, every target uses a random subset of the members, and the actor maximises the mean over all
    members (REDQ; Chen et al. 2021, arXiv 2101.05982).
    """

    shape: tuple[int, ...] = ()  # shape of one prediction; (): a number

    def __init__(self, cfg: Any):
        super().__init__()
        self.moments: RunningMoments | None = None  # of targets, by whose standard deviation the losses divide
        self.members: int = cfg.members
        self.target_members: int | None = cfg.target_members
        if self.target_members is not None and self.target_members > self.members:
            raise ConfigError(
                f"algo.critic.target_members={cfg.target_members}: must be at most algo.critic.members={cfg.members}"
            )

    def network(self, parts: Parts) -> Value:
        """Returns a new network of Q(s, a) with these members."""
        torso = parts.torso("critic", inputs=("obs", "action"), members=self.members)
        return Value(torso, self.members, shape=self.shape)

    def draw_members(self, stream: Stream) -> Tensor | None:
        """Returns the indices of the members that compute the next target, or None for all members."""
        if self.target_members is None:
            return None
        return stream.permutation(self.members)[: self.target_members]

    def value(self, z: Tensor) -> Tensor:
        """Returns the expected return that every member predicts; z [..., *shape] -> [...]."""
        raise NotImplementedError

    def target_return(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        """Returns a pessimistic return for a TD target; z [members, ..., *shape] -> [...] or [..., n].

        weights [columns]: weights of the reward columns, if z has columns. Pessimistic returns are low in columns of
        positive weight, and high in columns of negative weight.
        """
        raise NotImplementedError

    def actor_value(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        """Returns the expected return that the actor maximises; z [members, ..., *shape] -> [...]. weights: see
        `target_return`."""
        raise NotImplementedError

    def total(self, values: Tensor, weights: Tensor | None) -> Tensor:
        """Returns the sum of the values over the reward columns, weighted; without columns the values, [...]."""
        return values

    def discount(self, gamma: float, batch: Batch) -> Tensor:
        """Returns the discount gamma^n (1 - terminated) for `backup`; `n_steps` rewards are summed.

        With several discounts of a reward vector, it is [..., columns].
        """
        return gamma ** batch["n_steps"] * (1 - batch["terminated"])

    def backup(self, returns: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        """Returns the target of the loss, which stands for reward + discount * (return - cost).

        returns: result of `target_return`. reward, discount and cost: [batch], or [batch, columns]. cost: cost of the
        next step, such as alpha log pi in soft actor-critic; None: 0.
        """
        raise NotImplementedError

    def loss(self, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Returns losses and errors, both [members, batch] or [members, batch, columns].

        z: predictions for the action taken. target: result of `backup`.
        """
        raise NotImplementedError

    def losses(self, z: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the losses and errors of `loss`. With `moments`, which include these targets, the losses are those of
        predictions and targets divided by the standard deviation of all targets so far.

        weight [batch]: weights of the rows.
        """
        if self.moments is None:
            return self.loss(z, target)
        self.moments.add_masked(target, weight > 0)
        std = (self.moments.var + EPSILON).sqrt().to(target)
        losses, errors = self.loss(z / std, target / std)
        return losses, errors * std

    def regress(self, z: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Metrics, Tensor]:
        """Returns the loss of all members, 0-d, its metrics, and priorities for replay, [batch].

        z and target: as in `loss`. weight [batch]: weights of the rows.
        """
        losses, errors = self.losses(z, target, weight)
        loss = sum_over_members(losses, weight)
        q = self.value(z.detach())
        metrics = {"loss/critic": loss.detach(), "loss/q": batch_mean(q)}
        return loss, metrics, of_ensemble(errors.detach())


def check_atoms(cfg: Any) -> None:
    """Raises ConfigError unless `num_atoms`, `v_min` and `v_max` describe a range divided into atoms or bins."""
    if cfg.num_atoms < 2 or cfg.v_min >= cfg.v_max:
        raise ConfigError("algo.critic: needs num_atoms of at least 2 and v_min below v_max")


def q_function(critic: Critic, reduce: Callable[[Tensor, Tensor | None], Tensor], batch: Batch) -> QFunction:
    """Returns the function (obs, action) -> reduce(critic(obs, action)), for the reward weights of the batch.

    reduce: `target_return` or `actor_value` of an ensemble.
    """
    weights = batch.get("reward_weights")

    def q(*inputs: object) -> Tensor:
        return reduce(critic(*inputs), weights)

    return q


def pessimistic(reduce: Reduce, returns: Tensor, weights: Tensor | None) -> Tensor:
    """Returns sign * reduce(sign * returns) with the signs of the weights: a minimum becomes a maximum in columns of
    negative weight. Without weights, all signs are 1."""
    if weights is None:
        return reduce(returns)
    sign = signs(weights)
    return sign * reduce(sign * returns)


def signs(weights: Tensor) -> Tensor:
    """Returns -1 for negative weights, else 1; [columns]."""
    return torch.where(weights < 0, -1.0, 1.0)


def minimum(returns: Tensor) -> Tensor:
    """Returns the minimum over the members, [members, ...] -> [...]."""
    return returns.amin(0)


def lowest_member(returns: Tensor, value: Tensor) -> Tensor:
    """Returns the distribution of the member with the lowest value; [members, ..., n], [members, ...] -> [..., n]."""
    if len(returns) == 1:
        return returns[0]
    lowest = value.argmin(0, keepdim=True).unsqueeze(-1)
    return returns.take_along_dim(lowest, 0).squeeze(0)
