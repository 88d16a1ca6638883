"""Values of continuous actions, of which each dimension is divided into bins and chosen given the dimensions before."""

import math

import torch
from torch import Tensor, nn

from rlrun.functional.distributions import Categorical
from rlrun.networks.heads import Head
from rlrun.types import Obs


class AutoregressiveValues(Head):
    """Values u_k of the bins of every action dimension k, given the dimensions before it; a is in [-1, 1].

    Dimensions are counted from 0. Each has a network of its own; these are the members of one torso, whose inputs are
    observation and action. In the action that network k sees, dimensions from k on are 0. The centres of the bins are
    evenly spaced over [-1, 1].

    u defines a policy and the values of actions at temperature alpha:

        pi_k(b | a_{<k}) = softmax_b(u_k / alpha)
        Q(s, a) = V(s) + sum_k alpha log(bins pi_k(a_k | a_{<k})),   V(s) = alpha log mean_b exp(u_0 / alpha)

    These are the optimal values if alpha KL(pi_k || uniform) is subtracted from the reward for every k.
    """

    centres: Tensor
    earlier: Tensor

    def __init__(self, torso: nn.Module, dims: int, bins: int):
        super().__init__(torso, outputs=bins, members=dims)
        self.dims = dims
        self.bins = bins
        self.register_buffer("centres", torch.linspace(-1, 1, bins), persistent=False)
        earlier = torch.ones(dims, dims).tril(-1)  # [k, j] is 1 for j < k
        self.register_buffer("earlier", earlier.unsqueeze(1), persistent=False)

    def values(self, obs: Obs, action: Tensor) -> Tensor:
        """Returns the values of the bins of all dimensions in one batched product, [dims, batch, bins].

        action: [batch, dims]; the values of dimension k depend on a_{<k} only.
        """
        return self(obs, action * self.earlier)

    def values_of(self, k: int, obs: Obs, action: Tensor) -> Tensor:
        """Returns the values of the bins of dimension k, [batch, bins]. Only network k is computed."""
        return self.select(slice(k, k + 1), obs, action * self.earlier[k])[0]

    def nearest_bin(self, action: Tensor) -> Tensor:
        """Returns the indices of the bins whose centres are nearest to the actions, in the shape of the actions."""
        position = (action + 1) / 2 * (self.bins - 1)
        return position.round().long()

    def value(self, obs: Obs, action: Tensor, alpha: Tensor) -> Tensor:
        """Returns Q(s, a) [batch] at the bins nearest to the actions [batch, dims]."""
        values = self.values(obs, action)
        bin_index = self.nearest_bin(action).T.unsqueeze(-1)  # [dims, batch, 1]
        chosen = values.take_along_dim(bin_index, -1).squeeze(-1)
        soft_value = alpha * ((values / alpha).logsumexp(-1) - math.log(self.bins))
        advantage = chosen - soft_value  # alpha log(bins pi_k)
        return soft_value[0] + advantage.sum(0)

    def sample(self, obs: Obs, alpha: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns actions [batch, dims] that are drawn dimension by dimension, and KL(pi_k || uniform), [batch, dims].

        noise: uniform numbers in [0, 1), [batch, dims, bins].
        """
        action = torch.zeros_like(noise[..., 0])
        divergences = []
        for k in range(self.dims):
            dist = Categorical(self.values_of(k, obs, action) / alpha)
            action = self.with_bin(k, action, dist.sample(noise[:, k]))
            divergences.append(math.log(self.bins) - dist.entropy())
        return action, torch.stack(divergences, -1)

    def greedy(self, obs: Obs, batch: int) -> Tensor:
        """Returns actions [batch, dims]: each dimension in turn gets its bin of highest value, given those before."""
        action = self.centres.new_zeros(batch, self.dims)
        for k in range(self.dims):
            values = self.values_of(k, obs, action)
            action = self.with_bin(k, action, values.argmax(-1))
        return action

    def with_bin(self, k: int, action: Tensor, bin_index: Tensor) -> Tensor:
        """Returns actions [batch, dims] with the centres of these bins [batch] in dimension k."""
        return torch.cat([action[:, :k], self.centres[bin_index].unsqueeze(1), action[:, k + 1 :]], 1)
