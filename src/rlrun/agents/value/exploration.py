"""Schedules of epsilon, the probability of a random action, as functions of the run's progress."""

from typing import Any

import torch
from torch import Tensor, nn

from rlrun.config.schema import Fraction, NonNegativeInt, PositiveFraction, PositiveInt, config
from rlrun.core.schedule import StartsFresh
from rlrun.functional.schedules import exponential, geometric, linear
from rlrun.registry import register
from rlrun.types import Context


class Epsilon(StartsFresh, nn.Module):
    """Base of the schedules. The agent acts with `value`, which changes at every update."""

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
        raise NotImplementedError


@register("epsilon", "linear")
class Linear(Epsilon):
    """Changes epsilon linearly from start to end within the first `fraction` of the run, as Nature DQN does."""

    @config
    class Config:
        start: Fraction
        end: Fraction
        fraction: PositiveFraction

    def at(self, ctx: Context) -> float:
        return linear(self.cfg.start, self.cfg.end, ctx.progress, self.cfg.fraction)


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
    class Config:
        start: Fraction
        end: Fraction
        steps: PositiveInt

    def at(self, ctx: Context) -> float:
        return exponential(self.cfg.start, self.cfg.end, ctx.env_steps, self.cfg.steps)


@register("epsilon", "geometric")
class Geometric(Epsilon):
    """Multiplies epsilon by `factor` every `updates` updates."""

    @config
    class Config:
        start: Fraction
        factor: PositiveFraction
        updates: PositiveInt

    def at(self, ctx: Context) -> float:
        return geometric(self.cfg.start, self.cfg.factor, ctx.updates // self.cfg.updates)
