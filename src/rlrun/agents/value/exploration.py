"""Schedules of epsilon, the probability of a random action, as functions of the run's progress."""

from typing import Any

import torch
from torch import Tensor, nn

from rlrun.core.state import StartsFresh
from rlrun.schedules import shape
from rlrun.settings import Fraction, NonNegativeInt, PositiveFraction, PositiveInt, config, register
from rlrun.types import Context


class Epsilon(StartsFresh, nn.Module):
    """Base of the schedules. The agent acts with `value`, which changes at every update. Each Config is a shape."""

    value: Tensor

    def __init__(self, cfg: Any):
        super().__init__()
        self.cfg = cfg
        self.register_buffer("value", torch.zeros(()))
        self.update(Context(0, 0, 0.0))

    def update(self, ctx: Context) -> None:
        """Sets epsilon to its value at this point of the run."""
        self.value.fill_(self.at(ctx))

    def at(self, ctx: Context) -> float:
        """Returns epsilon at a point of the run."""
        value: float = self.cfg.value_at(self.cfg.start, ctx)
        return value


@register("epsilon", "linear")
class Linear(Epsilon):
    """Changes epsilon linearly from start to end within the first `fraction` of the run, as Nature DQN does."""

    @config
    class Config(shape.Linear):
        start: Fraction
        end: Fraction
        fraction: PositiveFraction


@register("epsilon", "random_start")
class RandomStart(Linear):
    """Takes random actions for the first `start_steps` steps of the run; after that, follows the linear schedule."""

    @config
    class Config(Linear.Config):
        start_steps: NonNegativeInt

    def at(self, ctx: Context) -> float:
        if ctx.env_steps < self.cfg.start_steps:
            return 1.0
        return super().at(ctx)


@register("epsilon", "exponential")
class Exponential(Epsilon):
    """Decays epsilon exponentially from start to end with a time constant of `steps` environment steps."""

    @config
    class Config(shape.Exponential):
        start: Fraction
        end: Fraction


@register("epsilon", "geometric")
class Geometric(Epsilon):
    """Multiplies epsilon by `factor` every `updates` updates."""

    @config
    class Config(shape.Geometric):
        start: Fraction
        factor: PositiveFraction
        updates: PositiveInt
