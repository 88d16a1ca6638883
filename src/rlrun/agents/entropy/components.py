"""One entropy coefficient for every component of an action, as in the Agent Learning Framework (ALF)."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlrun.agents.entropy.coefficient import EntropyCoefficient, default_target, resolve_target_entropy
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.functional.distributions import SquashedNormal
from rlrun.functional.losses import masked_mean
from rlrun.spaces import JoinedBox, JoinedChoices, MixedSpace
from rlrun.types import Metrics

TARGETS = ("target_entropy", "max_entropy")  # settings that may have a value for every component


class Components(EntropyCoefficient):
    """Coefficients of the components of an action, each adjusted to the entropy of its component.

    `alpha` and log-probabilities have a last dimension of the components. columns: entries of the action that hold
    each of them, by name and in their order.
    """

    def __init__(self, coefficients: Mapping[str, EntropyCoefficient], columns: Mapping[str, slice]):
        super().__init__()
        self.columns = columns
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

    def sample(self, policy: SquashedNormal, noise: Tensor) -> tuple[Tensor, Tensor]:
        sizes = [columns.stop - columns.start for columns in self.columns.values()]
        return policy.sample_parts(noise, sizes)

    def bonus(self, policy: object, weight: Tensor) -> tuple[Tensor, Tensor]:
        entropies = self.entropy_of(policy)
        averages = torch.stack([masked_mean(component, weight) for component in entropies.unbind(-1)])
        return (self.alpha * averages).sum(), averages.sum()

    def entropy_of(self, policy: Any) -> Tensor:
        """Returns the entropy of every component at every observation, [batch, components]."""
        entropies = policy.entropies()  # [batch, entries of the action]
        components = []
        for columns in self.columns.values():
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


def entropy_components(space: Space, values: Mapping[str, object]) -> dict[str, Space]:
    """Returns the components of an action that have coefficients of their own, by name; {} if there is one for all.

    Those of mixed actions have; those of one kind only if a setting has a number for each. values: settings of the
    part `algo.entropy`.
    """
    if isinstance(space, MixedSpace):
        return {**space.parts}
    names_each = any(isinstance(values.get(key), list | dict) for key in TARGETS)
    if isinstance(space, JoinedBox | JoinedChoices) and names_each:
        return {**space.parts}
    return {}


def default_targets(
    space: Space, values: Mapping[str, object], target: Callable[[Space], float] = default_target
) -> float | dict[str, float]:
    """Returns the default target entropy of an action space, or of each of the `entropy_components`, by name.

    target: returns that of a space.
    """
    components = entropy_components(space, values)
    if components:
        return {name: target(part) for name, part in components.items()}
    return target(space)


def entropy_coefficient(
    parts: Parts, values: dict[str, Any], space: Space, default: float | dict[str, float]
) -> EntropyCoefficient:
    """Returns the part `algo.entropy` of an agent, for every component of the action if `default` has them.

    values: settings of the part. default: default target entropy, by component for the `entropy_components`. Raises
    ConfigError for targets that do not fit the components.
    """
    if not isinstance(default, dict):
        own = resolve_target_entropy(values, space)
        return parts.part("entropy", own, EntropyCoefficient, default)
    assert isinstance(space, MixedSpace | JoinedBox | JoinedChoices)
    given = {}
    for key in TARGETS:
        if isinstance(values.get(key), list | dict):
            given[key] = by_component(key, values[key], [*default])
    coefficients = {}
    for name, target in default.items():
        own = values | {key: numbers.get(name) for key, numbers in given.items()}
        own = resolve_target_entropy(own, space.parts[name])
        coefficients[name] = parts.part("entropy", own, EntropyCoefficient, target)
    return Components(coefficients, space.columns)


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
