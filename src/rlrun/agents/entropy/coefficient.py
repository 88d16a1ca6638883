"""Base class of the part `algo.entropy`: the coefficient alpha of the term -alpha H in the policy loss, H = entropy."""

import math
from typing import Annotated, Any

import torch
from gymnasium import Space, spaces
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.functional.distributions import SquashedNormal
from rlrun.functional.losses import masked_mean
from rlrun.settings import Scheduled
from rlrun.spaces import choices
from rlrun.tensors import flat
from rlrun.types import Batch, Metrics

# names that `target_entropy` may have in place of a number; `resolve_target_entropy` computes the number
RULES = ("tenth", "minus_dimensions", "nearly_uniform")

# one number for all components of the action, or a number for each of them, in their order or by name; None: a default
PerComponent = float | list[float] | dict[str, float] | None

LEAST_TEMPERATURE = 1e-6  # replaces an alpha of 0 in a policy softmax(Q / alpha), which is then greedy
SPREAD = 0.1  # `default_target`: the part of a Box action's range that is used; the probability of all but one choice


def _number_or_rule(value: object) -> object:
    if isinstance(value, str) and value not in RULES:
        raise PydanticCustomError("target_entropy", f"Input should be a number, null or one of {', '.join(RULES)}")
    return value


# numbers in nats, or one of RULES
TargetEntropy = Scheduled[Annotated[PerComponent | str, BeforeValidator(_number_or_rule)]]


class EntropyCoefficient(nn.Module):
    """Base class of the coefficients. Subclasses are built from a config and the default target entropy in nats."""

    adjusts: bool = True  # whether alpha follows the entropy

    @property
    def alpha(self) -> Tensor:
        """The current coefficient, 0-d and detached."""
        raise NotImplementedError

    @property
    def temperature(self) -> Tensor:
        """alpha as the temperature of a policy softmax(Q / alpha): at least LEAST_TEMPERATURE, to divide by it."""
        return self.alpha.clamp(min=LEAST_TEMPERATURE)

    def cost(self, log_prob: Tensor) -> Tensor:
        """Returns alpha log pi(a|s), [batch], of sampled actions with log_prob [batch]."""
        return self.alpha * log_prob

    def sample(self, policy: SquashedNormal, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns an action of a squashed policy, [batch, ...], and its log-probability as `cost` takes it."""
        return policy.sample(noise)

    def bonus(self, policy: object, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Returns alpha H and the entropy H of a policy, both averaged over the rows that are not masked.

        policy: the action distributions of a batch. weight [batch]: weights of the rows.
        """
        entropy = masked_mean(self.entropy_of(policy), weight)
        return self.alpha * entropy, entropy

    def entropy_of(self, policy: Any) -> Tensor:
        """Returns the entropy of a policy at every observation, in the form that `adjust` takes."""
        return policy.entropy()  # type: ignore[no-any-return]

    def adjust(self, entropy: Tensor, weight: Tensor) -> Metrics:
        """Adjusts alpha, and returns metrics.

        entropy [batch]: entropy of the policy at every observation. weight [batch]: weights of the rows.
        """
        raise NotImplementedError

    def follow(self, policy: nn.Module, rollout: Batch) -> Metrics:
        """Adjusts alpha to the entropy of the policy over a rollout [time, env, ...], and returns metrics."""
        if not self.adjusts:
            return {}
        with torch.no_grad():
            entropy = self.entropy_of(policy(flat(rollout["obs"])))
        return self.adjust(entropy, flat(rollout["weight"]))


class MovingAverage(nn.Module):
    """The mean of the last `size` values of a series."""

    recent: Tensor
    seen: Tensor

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.register_buffer("recent", torch.zeros(size))
        self.register_buffer("seen", torch.zeros(()))  # number of values in `recent`, at most `size`

    def add(self, x: Tensor) -> None:
        self.recent.copy_(torch.cat([self.recent[1:], x.detach().view(1)]))
        self.seen.add_(1).clamp_(max=self.size)

    def mean(self) -> Tensor:
        return self.recent.sum() / self.seen.clamp(min=1)


def resolve_target_entropy(values: dict[str, object], space: Space, path: str = "algo.entropy") -> dict[str, object]:
    """Returns `values`, the settings of an entropy part; the name of a rule in `target_entropy` becomes a number.

    `minus_dimensions` is the rule of SAC (arXiv 1812.05905), `nearly_uniform` that of SAC for discrete actions (arXiv
    1910.07207), and `tenth` that of `default_target`. path: dotted key of the settings. Raises ConfigError if a rule is
    not defined for the space, or if `target_entropy` or `max_entropy` has more than one number.
    """
    for key in ("target_entropy", "max_entropy"):
        given = values.get(key)
        if isinstance(given, list | dict):
            raise ConfigError(f"{path}.{key}={given}: must be one number or null for the actions {space}")
    rule = values.get("target_entropy")
    if not isinstance(rule, str):
        return values
    is_box = isinstance(space, spaces.Box)
    if rule == "tenth":
        target = default_target(space)
    elif rule == "minus_dimensions" and is_box:
        target = minus_dimensions(space)
    elif rule == "nearly_uniform" and not is_box:
        target = nearly_uniform(space)
    else:
        kind = "Box"
        other = "nearly_uniform"
        if is_box:
            kind = "discrete"
            other = "minus_dimensions"
        raise ConfigError(f"{path}.target_entropy={rule}: needs {kind} actions; choose {other}, tenth or a number")
    return values | {"target_entropy": target}


def nearly_uniform(space: Space) -> float:
    """Returns 0.98 of the entropy of uniform discrete actions in nats, summed over the dimensions of the action."""
    return 0.98 * sum(math.log(n) for n in choices(space))


def minus_dimensions(space: Space) -> float:
    """Returns minus the number of dimensions of a Box action, the target entropy of SAC."""
    return -float(math.prod(space.shape or ()))


def default_target(space: Space) -> float:
    """Returns the default target entropy in nats, summed over the dimensions of the action.

    Box actions: the entropy of a uniform distribution over a tenth of [-1, 1]. Discrete actions: the entropy if one
    action has probability 0.9 and the others share 0.1 equally.
    """
    if isinstance(space, spaces.Box):
        num_dims = math.prod(space.shape)
        return num_dims * math.log(2 * SPREAD)
    total = 0.0
    for n in choices(space):
        if n > 1:
            others = SPREAD * math.log((n - 1) / SPREAD)
            likely = -(1 - SPREAD) * math.log(1 - SPREAD)
            total += others + likely
    return total
