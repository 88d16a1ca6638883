"""What every component of a reward vector weighs in what the agent maximises, said once and for all."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlrun.config.schema import config
from rlrun.core.addon import Addon
from rlrun.errors import ConfigError
from rlrun.registry import register
from rlrun.types import Batch, Objective, Spec


@register("reward_weights", "fixed")
class FixedWeights(Addon):
    """Every batch brings `reward_weights` [components]; rewards stay as they are."""

    weights: Tensor

    @config
    class Config:
        weights: list[float] | None

    def __init__(self, cfg: Any, spec: Spec):
        super().__init__()
        given = one_each(cfg.weights, "weights", 1.0, spec)
        self.objective = Objective(given, (None,) * len(given))
        self.register_buffer("weights", torch.tensor(given), persistent=False)

    def spec(self, spec: Spec) -> Spec:
        return replace(spec, objective=self.objective)

    def relabel(self, batch: Batch) -> Batch:
        return batch | {"reward_weights": self.weights}


def one_each(given: list[Any] | None, key: str, default: Any, spec: Spec) -> tuple[Any, ...]:
    """One value for each component. ConfigError where there are more or fewer."""
    values = (default,) * spec.reward_dim if given is None else tuple(given)
    if len(values) != spec.reward_dim:
        raise ConfigError(f"algo.reward_weights.{key}={given}: this environment's rewards have {spec.reward_dim} parts")
    return values
