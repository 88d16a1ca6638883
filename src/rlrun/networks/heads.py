"""Heads: a torso with linear outputs, as the policies and value functions of the algorithms."""

import math
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.functional.distributions import Categorical, Independent, Normal, SquashedNormal
from rlrun.networks.choices import choices, distribution
from rlrun.networks.linear import Linear

LOG_STD_MIN = -20.0  # bounds of state-dependent standard deviations, as in the SAC authors' code
LOG_STD_MAX = 2.0


class Head(nn.Module):
    """Linear outputs on a torso: [batch, outputs], or with members [members, batch, outputs]."""

    def __init__(
        self,
        torso: nn.Module,
        outputs: int,
        members: int | None = None,
        gain: float | None = None,
    ):
        super().__init__()
        self.torso = torso
        features: int = torso.features  # type: ignore[assignment]
        self.output = Linear(features, outputs, members, gain)

    def forward(self, *inputs: Any) -> Tensor:
        features = self.torso(*inputs)
        return self.output(features)

    def select(self, members: Tensor | slice | None, *inputs: Any) -> Tensor:
        """Returns outputs of some members only, [selected, batch, outputs]; of all members for None.

        The others are not computed, unless members share parameters.
        """
        if members is None:
            return self(*inputs)
        selected = {}
        for name, param in self.named_parameters():
            if param.dim() != 3:  # of a convolution or a recurrent cell, not [members, in, out]
                outputs = self(*inputs)
                return outputs[members]
            selected[name] = param[members]
        return torch.func.functional_call(self, selected, inputs)


class ActionValues(Head):
    """`size` numbers about the return of every action: [batch, actions, size]."""

    def __init__(self, torso: nn.Module, actions: int, size: int = 1):
        super().__init__(torso, actions * size)
        self.shape = (actions, size)

    def forward(self, *inputs: Any) -> Tensor:
        outputs = super().forward(*inputs)
        return outputs.unflatten(-1, self.shape)


class Dueling(ActionValues):
    """The value of the state plus advantages of mean 0 over the actions (arXiv 1511.06581, eq. 9).

    Returns [batch, actions, size].
    """

    def __init__(self, torso: nn.Module, actions: int, size: int = 1):
        super().__init__(torso, actions, size)
        features: int = torso.features  # type: ignore[assignment]
        self.value = Linear(features, size)

    def forward(self, *inputs: Any) -> Tensor:
        features = self.torso(*inputs)
        value = self.value(features).unsqueeze(-2)
        advantage = self.output(features).unflatten(-1, self.shape)
        mean_advantage = advantage.mean(-2, keepdim=True)
        return value + advantage - mean_advantage


class Value(Head):
    """V(s) or Q(s, a), as the inputs of the torso are: [batch], or with members [members, batch].

    For several reward columns one value each: [..., columns].
    """

    def __init__(
        self,
        torso: nn.Module,
        members: int | None = None,
        gain: float | None = None,
        columns: int = 1,
    ):
        super().__init__(torso, columns, members, gain)

    def forward(self, *inputs: Any) -> Tensor:
        outputs = super().forward(*inputs)
        return outputs.squeeze(-1)


class DiscreteCritic(Head):
    """Q-values of an ensemble for every discrete action, [members, batch, actions].

    With an action [batch] only its values, [members, batch]. For several reward columns one value each: [..., columns].
    """

    def __init__(self, torso: nn.Module, actions: int, members: int, columns: int = 1):
        super().__init__(torso, actions * columns, members)
        self.columns = columns

    def forward(self, obs: Any, action: Tensor | None = None) -> Tensor:
        q = super().forward(obs)
        if self.columns > 1:
            q = q.unflatten(-1, (-1, self.columns))
        if action is None:
            return q
        action = action[None, :, None]
        if self.columns > 1:
            action = action.unsqueeze(-1)
        return q.take_along_dim(action, 2).squeeze(2)


class DeterministicPolicy(Head):
    """One action in (-1, 1) per dimension."""

    def forward(self, *inputs: Any) -> Tensor:
        outputs = super().forward(*inputs)
        return torch.tanh(outputs)


class SquashedGaussianPolicy(Head):
    """A normal distribution with mean and standard deviation from the observation, squashed by tanh."""

    def __init__(self, torso: nn.Module, actions: int):
        super().__init__(torso, 2 * actions)

    def forward(self, *inputs: Any) -> SquashedNormal:  # type: ignore[override]
        outputs = super().forward(*inputs)
        mean, log_std = outputs.chunk(2, -1)
        log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        return SquashedNormal(mean, log_std)


class GaussianPolicy(Head):
    """A normal distribution with mean from the observation and one learned standard deviation per dimension."""

    def __init__(
        self,
        torso: nn.Module,
        actions: int,
        gain: float | None = None,
        std: float = 1.0,
    ):
        super().__init__(torso, actions, gain=gain)
        log_std = torch.full((actions,), math.log(std))
        self.log_std = nn.Parameter(log_std)

    def forward(self, *inputs: Any) -> Normal:  # type: ignore[override]
        mean = super().forward(*inputs)
        return Normal(mean, self.log_std.expand_as(mean))


class DiscretePolicy(Head):
    """A distribution over the choices of one or several discrete decisions; masked actions have probability 0."""

    def __init__(self, torso: nn.Module, space: Space, gain: float | None = None):
        num_choices = sum(choices(space))
        super().__init__(torso, num_choices, gain=gain)
        self.space = space

    def forward(self, obs: Any) -> Categorical | Independent:  # type: ignore[override]
        logits = super().forward(obs)
        return distribution(self.space, logits, obs)


def stochastic_policy(
    torso: nn.Module,
    space: Space,
    gain: float | None = None,
    std: float = 1.0,
) -> Head:
    """Returns the policy of an on-policy algorithm for an action space; std: that of Box actions at the start."""
    if isinstance(space, spaces.Box):
        return GaussianPolicy(torso, space.shape[0], gain, std)
    return DiscretePolicy(torso, space, gain)
