"""Schedules of epsilon, the probability of a random action, as functions of the run's progress."""

from typing import Any

from rlrun.config.schema import Fraction, PositiveFraction, PositiveInt, config
from rlrun.functional.schedules import exponential, geometric, linear
from rlrun.registry import register
from rlrun.types import Context


class Epsilon:
    """Base class of the schedules. A call returns epsilon at the given point of a run."""

    def __init__(self, cfg: Any):
        self.cfg = cfg

    def __call__(self, ctx: Context) -> float:
        raise NotImplementedError


@register("epsilon", "linear")
class Linear(Epsilon):
    """Changes epsilon linearly from start to end within the first `fraction` of the run, as Nature DQN does."""

    @config
    class Config:
        start: Fraction
        end: Fraction
        fraction: PositiveFraction

    def __call__(self, ctx: Context) -> float:
        return linear(self.cfg.start, self.cfg.end, ctx.progress, self.cfg.fraction)


@register("epsilon", "exponential")
class Exponential(Epsilon):
    """Decays epsilon exponentially from start to end with a time constant of `steps` environment steps."""

    @config
    class Config:
        start: Fraction
        end: Fraction
        steps: PositiveInt

    def __call__(self, ctx: Context) -> float:
        return exponential(self.cfg.start, self.cfg.end, ctx.env_steps, self.cfg.steps)


@register("epsilon", "geometric")
class Geometric(Epsilon):
    """Multiplies epsilon by `factor` every `updates` updates."""

    @config
    class Config:
        start: Fraction
        factor: PositiveFraction
        updates: PositiveInt

    def __call__(self, ctx: Context) -> float:
        return geometric(self.cfg.start, self.cfg.factor, ctx.updates // self.cfg.updates)
