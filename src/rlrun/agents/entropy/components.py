"""One entropy coefficient for every component of a mixed action, as in the Agent Learning Framework (ALF)."""

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlrun.agents.entropy.coefficient import EntropyCoefficient, default_target, resolve_target_entropy
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean
from rlrun.spaces import MixedSpace
from rlrun.types import Metrics

TARGETS = ("target_entropy", "max_entropy")  # settings that may have a value for every component


class Components(EntropyCoefficient):
    """Coefficients of the components of a mixed action, each adjusted to the entropy of its component.

    `alpha` and log-probabilities have a last dimension of the components, in the order of `MixedSpace.parts`.
    """

    def __init__(self, coefficients: Mapping[str, EntropyCoefficient], space: MixedSpace):
        super().__init__()
        self.space = space
        self.names = [*coefficients]
        self.coefficients: Any = nn.ModuleList(coefficients.values())
        self.adjusts = any(coefficient.adjusts for coefficient in self.coefficients)

    @property
    def alpha(self) -> Tensor:
        """The current coefficients, [components] and detached."""
        alphas = [coefficient.alpha for coefficient in self.coefficients]
        return torch.stack(alphas)

    def cost(self, log_prob: Tensor) -> Tensor:
        """Returns the sum of alpha log pi over the components, [batch]; log_prob [batch, components]."""
        return (self.alpha * log_prob).sum(-1)

    def bonus(self, policy: object, weight: Tensor) -> tuple[Tensor, Tensor]:
        entropies = self.entropy_of(policy)
        averages = torch.stack([masked_mean(component, weight) for component in entropies.unbind(-1)])
        return (self.alpha * averages).sum(), averages.sum()

    def entropy_of(self, policy: Any) -> Tensor:
        """Returns the entropy of every component at every observation, [batch, components]."""
        entropies = policy.entropies()  # [batch, entries of the action]
        components = []
        for columns in self.space.columns.values():
            components.append(entropies[..., columns].sum(-1))
        return torch.stack(components, -1)

    def adjust(self, entropy: Tensor, weight: Tensor) -> Metrics:
        """Adjusts every coefficient to the entropy of its component; entropy [batch, components]."""
        metrics = {"loss/entropy": masked_mean(entropy.sum(-1), weight)}
        components = entropy.unbind(-1)
        for name, coefficient, component in zip(self.names, self.coefficients, components, strict=True):
            metrics[f"loss/entropy_{name}"] = masked_mean(component, weight)
            adjusted = coefficient.adjust(component, weight)
            for key, value in adjusted.items():
                metrics[f"{key}_{name}"] = value
        return metrics


def default_targets(space: Space) -> float | dict[str, float]:
    """Returns `default_target` of an action space, or of every component of a mixed one, by name."""
    if isinstance(space, MixedSpace):
        return {name: default_target(part) for name, part in space.parts.items()}
    return default_target(space)


def entropy_coefficient(
    parts: Parts, values: dict[str, Any], space: Space, default: float | dict[str, float]
) -> EntropyCoefficient:
    """Returns the part `algo.entropy` of an agent, for every component of the action if `space` is mixed.

    values: settings of the part. default: default target entropy, by component if `space` is mixed. Raises ConfigError
    for targets that do not fit the components.
    """
    if not isinstance(space, MixedSpace):
        own = resolve_target_entropy(values, space)
        return parts.part("entropy", own, EntropyCoefficient, default)
    assert isinstance(default, dict)
    given = {}
    for key in TARGETS:
        if isinstance(values.get(key), list | dict):
            given[key] = by_component(key, values[key], [*default])
    coefficients = {}
    for name, target in default.items():
        own = values | {key: numbers.get(name) for key, numbers in given.items()}
        own = resolve_target_entropy(own, space.parts[name])
        coefficients[name] = parts.part("entropy", own, EntropyCoefficient, target)
    return Components(coefficients, space)


def by_component(key: str, given: list[float] | dict[str, float], names: list[str]) -> dict[str, float]:
    """Returns the numbers of a setting by the names of the components.

    Raises ConfigError for other names, or a list of another length.
    """
    if isinstance(given, list) and len(given) == len(names):
        return dict(zip(names, given, strict=True))
    if isinstance(given, dict) and given.keys() <= {*names}:
        return given
    raise ConfigError(
        f"algo.entropy.{key}={given}: must be one number, a list of {len(names)}, or numbers by name, for the "
        f"components of the action: {', '.join(names)}"
    )
