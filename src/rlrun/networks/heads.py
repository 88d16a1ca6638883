"""Heads: a torso with outputs, as the roles that algorithms need."""

import math
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.functional.distributions import Categorical, Independent, Normal, SquashedNormal
from rlrun.networks.choices import choices, distribution
from rlrun.networks.linear import Linear

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0  # of state-dependent deviations, as in the SAC authors' code


class Head(nn.Module):
    """Linear outputs on a torso: [batch, outputs], or with members [members, batch, outputs]."""

    def __init__(self, torso: nn.Module, outputs: int, members: int | None = None, gain: float | None = None):
        super().__init__()
        self.torso = torso
        self.output = Linear(torso.features, outputs, members, gain)  # type: ignore[arg-type]

    def forward(self, *inputs: Any) -> Tensor:
        return self.output(self.torso(*inputs))

    def select(self, members: Tensor | slice | None, *inputs: Any) -> Tensor:
        """Outputs of some members only, [selected, batch, outputs]; of all members for None.

        The others are not computed, unless members share parameters.
        """
        if members is None:
            return self(*inputs)
        if any(param.dim() != 3 for param in self.parameters()):  # convolutions or a memory, not [members, in, out]
            return self(*inputs)[members]
        selected = {name: param[members] for name, param in self.named_parameters()}
        return torch.func.functional_call(self, selected, inputs)


class ActionValues(Head):
    """`size` numbers about the return of every action: [batch, actions, size]."""

    def __init__(self, torso: nn.Module, actions: int, size: int = 1):
        super().__init__(torso, actions * size)
        self.shape = (actions, size)

    def forward(self, *inputs: Any) -> Tensor:
        return super().forward(*inputs).unflatten(-1, self.shape)


class Dueling(ActionValues):
    """The same as those of the state plus advantages of mean 0 over the actions (arXiv 1511.06581, eq. 9)."""

    def __init__(self, torso: nn.Module, actions: int, size: int = 1):
        super().__init__(torso, actions, size)
        self.value = Linear(torso.features, size)  # type: ignore[arg-type]

    def forward(self, *inputs: Any) -> Tensor:
        features = self.torso(*inputs)
        advantage = self.output(features).unflatten(-1, self.shape)
        return self.value(features).unsqueeze(-2) + advantage - advantage.mean(-2, keepdim=True)


class Value(Head):
    """One number per row: [batch], or with members [members, batch]. V(s), or Q(s, a), as the torso's inputs say.

    Of several reward columns one each: [..., columns].
    """

    def __init__(self, torso: nn.Module, members: int | None = None, gain: float | None = None, columns: int = 1):
        super().__init__(torso, columns, members, gain)

    def forward(self, *inputs: Any) -> Tensor:
        return super().forward(*inputs).squeeze(-1)


class DiscreteCritic(Head):
    """Q-values of an ensemble, one for each discrete action: [members, batch, actions], or [members, batch] of one
    action [batch]. Of several reward columns one each: [..., columns]."""

    def __init__(self, torso: nn.Module, actions: int, members: int, columns: int = 1):
        super().__init__(torso, actions * columns, members)
        self.columns = columns

    def forward(self, obs: Any, action: Tensor | None = None) -> Tensor:
        q = super().forward(obs)
        if self.columns > 1:
            q = q.unflatten(-1, (-1, self.columns))
        if action is None:
            return q
        chosen = action[None, :, None] if self.columns == 1 else action[None, :, None, None]
        return q.take_along_dim(chosen, 2).squeeze(2)


class DeterministicPolicy(Head):
    """One action in (-1, 1) per dimension."""

    def forward(self, *inputs: Any) -> Tensor:
        return torch.tanh(super().forward(*inputs))


class SquashedGaussianPolicy(Head):
    """Mean and deviation from the observation, squashed by tanh."""

    def __init__(self, torso: nn.Module, actions: int):
        super().__init__(torso, 2 * actions)

    def forward(self, *inputs: Any) -> SquashedNormal:  # type: ignore[override]
        mean, log_std = super().forward(*inputs).chunk(2, -1)
        return SquashedNormal(mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX))


class GaussianPolicy(Head):
    """Mean from the observation, one learned deviation per action dimension."""

    def __init__(self, torso: nn.Module, actions: int, gain: float | None = None, std: float = 1.0):
        super().__init__(torso, actions, gain=gain)
        self.log_std = nn.Parameter(torch.full((actions,), math.log(std)))

    def forward(self, *inputs: Any) -> Normal:  # type: ignore[override]
        mean = super().forward(*inputs)
        return Normal(mean, self.log_std.expand_as(mean))


class DiscretePolicy(Head):
    """Logits over the choices of one or several discrete decisions; forbidden ones are never taken."""

    def __init__(self, torso: nn.Module, space: Space, gain: float | None = None):
        super().__init__(torso, sum(choices(space)), gain=gain)
        self.space = space

    def forward(self, obs: Any) -> Categorical | Independent:  # type: ignore[override]
        return distribution(self.space, super().forward(obs), obs)


def stochastic_policy(torso: nn.Module, space: Space, gain: float | None = None, std: float = 1.0) -> Head:
    """The policy head for an action space, as on-policy algorithms sample from it; `std` at the start, of a Box."""
    if isinstance(space, spaces.Box):
        return GaussianPolicy(torso, space.shape[0], gain, std)
    return DiscretePolicy(torso, space, gain)
