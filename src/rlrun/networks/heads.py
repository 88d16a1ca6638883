"""Heads: the policies and value functions of the algorithms, each a torso with a linear output layer."""

import math
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.functional.distributions import Categorical, Independent, Joint, Normal, SquashedNormal
from rlrun.networks.choices import distribution
from rlrun.networks.linear import Linear
from rlrun.spaces import MixedSpace, choices
from rlrun.types import Metrics, Obs

LOG_STD_MIN = -20.0  # bounds of log_std where it depends on the observation, as in the SAC authors' code
LOG_STD_MAX = 2.0


class Head(nn.Module):
    """A torso followed by a linear layer: [batch, outputs], or [members, batch, outputs] with members."""

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

    def forward(self, *inputs: Obs) -> Tensor:
        features = self.torso(*inputs)
        return self.output(features)

    def select(self, members: Tensor | slice | None, *inputs: Obs) -> Tensor:
        """Returns the outputs of the selected members, [selected, batch, outputs]; None selects all members.

        Only the selected members are computed, unless the network has weights of another shape than [members, in, out],
        such as those of convolutions or a recurrent cell.
        """
        if members is None:
            return self(*inputs)
        params = dict(self.named_parameters())
        count = len(self.output.weight)
        if any(param.dim() != 3 or len(param) != count for param in params.values()):
            outputs = self(*inputs)
            return outputs[members]
        selected = {name: param[members] for name, param in params.items()}
        return torch.func.functional_call(self, selected, inputs)


class ActionValues(Head):
    """A prediction for every action of a discrete space: [batch, actions, *shape], or [members, batch, actions, *shape]
    with members.

    shape: of one prediction; () for the value of the action, (n,) for n quantiles of its return.
    """

    def __init__(self, torso: nn.Module, actions: int, members: int | None = None, shape: tuple[int, ...] = ()):
        super().__init__(torso, actions * math.prod(shape), members)
        self.row_shape = (actions, *shape)

    def forward(self, *inputs: Obs) -> Tensor:
        outputs = super().forward(*inputs)
        return outputs.unflatten(-1, self.row_shape)


class Dueling(ActionValues):
    """Action values as the sum of a state value and advantages with mean 0 over the actions (arXiv 1511.06581, eq. 9).

    The arguments and the shape of the output are those of `ActionValues`.
    """

    def __init__(self, torso: nn.Module, actions: int, members: int | None = None, shape: tuple[int, ...] = ()):
        super().__init__(torso, actions, members, shape)
        features: int = torso.features  # type: ignore[assignment]
        self.value = Linear(features, math.prod(shape), members)

    def forward(self, *inputs: Obs) -> Tensor:
        features = self.torso(*inputs)
        _, *shape = self.row_shape
        value = self.value(features).unflatten(-1, (1, *shape))
        advantage = self.output(features).unflatten(-1, self.row_shape)
        actions_axis = -len(self.row_shape)
        mean_advantage = advantage.mean(actions_axis, keepdim=True)
        return value + advantage - mean_advantage


class Value(Head):
    """V(s) or Q(s, a), depending on the inputs of the torso: [batch], or [members, batch] with members.

    With more than one reward column, there is one value per column: [..., columns]. With `shape`, a prediction of this
    shape takes the place of each value: [..., *shape], or [..., columns, *shape].
    """

    def __init__(
        self,
        torso: nn.Module,
        members: int | None = None,
        gain: float | None = None,
        columns: int = 1,
        shape: tuple[int, ...] = (),
    ):
        row_shape = shape
        if columns > 1:
            row_shape = (columns, *shape)
        super().__init__(torso, math.prod(row_shape), members, gain)
        self.row_shape = row_shape

    def forward(self, *inputs: Obs) -> Tensor:
        outputs = super().forward(*inputs)
        if not self.row_shape:
            return outputs.squeeze(-1)
        return outputs.unflatten(-1, self.row_shape)


class DiscreteCritic(ActionValues):
    """Ensemble of Q-functions for discrete actions: [members, batch, actions, *shape].

    If `forward` gets an action [batch], it returns only the predictions for that action, [members, batch, *shape].
    """

    def forward(self, obs: Obs, action: Tensor | None = None) -> Tensor:  # type: ignore[override]
        z = super().forward(obs)
        if action is None:
            return z
        return gather_action(z, action)


def gather_action(z: Tensor, action: Tensor) -> Tensor:
    """Returns the predictions for the given actions: z [members, batch, actions, *shape], action [batch] ->
    [members, batch, *shape]."""
    _, batch, _, *shape = z.shape
    index = action.view(1, batch, 1, *[1] * len(shape))
    return z.take_along_dim(index, 2).squeeze(2)


class DeterministicPolicy(Head):
    """Actions [batch, dimensions] in (-1, 1), by tanh: a tensor, not a distribution."""

    def forward(self, *inputs: Obs) -> Tensor:
        outputs = super().forward(*inputs)
        return torch.tanh(outputs)


class PolicyHead(Head):
    """A head that returns an action distribution, like those in functional/distributions.py."""

    def report(self) -> Metrics:
        """Returns metrics of the policy for the log rows."""
        return {}


class SquashedGaussianPolicy(Head):
    """A normal distribution squashed by tanh; its mean and standard deviation depend on the observation.

    actions: number of dimensions of the action.
    """

    def __init__(self, torso: nn.Module, actions: int):
        super().__init__(torso, 2 * actions)

    def forward(self, *inputs: Obs) -> SquashedNormal:  # type: ignore[override]
        outputs = super().forward(*inputs)
        mean, log_std = outputs.chunk(2, -1)
        log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        return SquashedNormal(mean, log_std)


class GaussianPolicy(PolicyHead):
    """A normal distribution whose mean depends on the observation, with one standard deviation per dimension.

    actions: number of dimensions of the action. std: initial standard deviation. learn_std: whether it is a parameter;
    otherwise it stays constant. tanh_mean: whether tanh limits the mean to (-1, 1).
    """

    log_std: Tensor

    def __init__(
        self,
        torso: nn.Module,
        actions: int,
        gain: float | None = None,
        std: float = 1.0,
        learn_std: bool = True,
        tanh_mean: bool = False,
    ):
        super().__init__(torso, actions, gain=gain)
        self.tanh_mean = tanh_mean
        log_std = torch.full((actions,), math.log(std))
        if learn_std:
            self.log_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_std", log_std)

    def forward(self, *inputs: Obs) -> Normal:  # type: ignore[override]
        mean = super().forward(*inputs)
        if self.tanh_mean:
            mean = torch.tanh(mean)
        return Normal(mean, self.log_std.expand_as(mean))

    def report(self) -> Metrics:
        """Returns the standard deviation, averaged over the dimensions of the action."""
        return {"std": self.log_std.detach().exp().mean()}


class DiscretePolicy(PolicyHead):
    """A distribution over the actions of a discrete space; actions that the action mask forbids have probability 0."""

    def __init__(self, torso: nn.Module, space: Space, gain: float | None = None):
        num_choices = sum(choices(space))
        super().__init__(torso, num_choices, gain=gain)
        self.space = space

    def forward(self, obs: Obs) -> Categorical | Independent:  # type: ignore[override]
        logits = super().forward(obs)
        return distribution(self.space, logits, obs)


class MixedPolicy(PolicyHead):
    """A distribution over mixed actions: independent choices, and a normal distribution with one standard deviation per
    dimension.

    std: initial standard deviation.
    """

    def __init__(self, torso: nn.Module, space: MixedSpace, gain: float | None = None, std: float = 1.0):
        num_logits = sum(choices(space))
        num_means = space.continuous.shape[0]
        super().__init__(torso, num_logits + num_means, gain=gain)
        self.space = space
        self.sizes = [num_logits, num_means]
        self.log_std = nn.Parameter(torch.full((num_means,), math.log(std)))

    def forward(self, obs: Obs) -> Joint:  # type: ignore[override]
        outputs = super().forward(obs)
        logits, mean = outputs.split(self.sizes, -1)
        discrete: Any = distribution(self.space.discrete, logits, obs)
        return Joint(discrete, Normal(mean, self.log_std.expand_as(mean)))

    def report(self) -> Metrics:
        """Returns the standard deviation, averaged over the continuous dimensions."""
        return {"std": self.log_std.detach().exp().mean()}


def stochastic_policy(
    torso: nn.Module,
    space: Space,
    gain: float | None = None,
    std: float = 1.0,
) -> PolicyHead:
    """Returns the policy head for an action space. std: initial standard deviation of continuous actions."""
    if isinstance(space, spaces.Box):
        return GaussianPolicy(torso, space.shape[0], gain, std)
    if isinstance(space, MixedSpace):
        return MixedPolicy(torso, space, gain, std)
    return DiscretePolicy(torso, space, gain)
