"""Fixed weights of the components of a reward vector in the objective."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.errors import ConfigError
from rlrun.settings import Fraction, config, register
from rlrun.types import Batch, Objective, Spec


@register("reward_weights", "fixed")
class FixedWeights(Addon):
    """Adds `reward_weights` [components] to every batch; rewards stay as they are."""

    weights: Tensor

    @config
    class Config:
        weights: list[float] | None
        gamma: list[Fraction] | None

    def __init__(self, cfg: Any, spec: Spec):
        super().__init__()
        weights = per_component(cfg.weights, "weights", 1.0, spec)
        no_floors = (None,) * len(weights)
        self.objective = Objective(weights, no_floors)
        self.discounts = discounts_of(cfg.gamma, spec)
        self.register_buffer("weights", torch.tensor(weights), persistent=False)

    def spec_after(self, spec: Spec) -> Spec:
        return replace(spec, objective=self.objective, discounts=self.discounts)

    def relabel(self, batch: Batch) -> Batch:
        return batch | {"reward_weights": self.weights}


def discounts_of(gamma: list[float] | None, spec: Spec) -> tuple[float, ...]:
    """Returns `Spec.discounts` for the setting `gamma` of reward weights."""
    if gamma is None:
        return ()
    return per_component([*gamma], "gamma", None, spec)


def per_component(given: list[object] | None, key: str, default: object, spec: Spec) -> tuple[Any, ...]:
    """Returns one value per reward component: the given values, or `default` for every component if `given` is None.

    Raises ConfigError if the number of given values is not the number of components.
    """
    if given is None:
        return (default,) * spec.reward_dim
    values = tuple(given)
    if len(values) != spec.reward_dim:
        raise ConfigError(f"algo.reward_weights.{key}={given}: must have {spec.reward_dim} values, one per component")
    return values
