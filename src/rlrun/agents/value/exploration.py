"""Schedules of epsilon, the probability of a random action, over a run."""

from typing import Any

from rlrun.config.schema import Fraction, PositiveFraction, PositiveInt, config
from rlrun.functional.schedules import exponential, geometric, linear
from rlrun.registry import register
from rlrun.types import Context


class Epsilon:
    """Base of the schedules; calling one returns epsilon at a point of a run."""

    def __init__(self, cfg: Any):
        self.cfg = cfg

    def __call__(self, ctx: Context) -> float:
        raise NotImplementedError


@register("epsilon", "linear")
class Linear(Epsilon):
    """Linear from start to end over the first fraction of the run, as in Nature DQN."""

    @config
    class Config:
        start: Fraction
        end: Fraction
        fraction: PositiveFraction

    def __call__(self, ctx: Context) -> float:
        return linear(self.cfg.start, self.cfg.end, ctx.progress, self.cfg.fraction)


@register("epsilon", "exponential")
class Exponential(Epsilon):
    """Exponential decay from start to end with a time constant in environment steps."""

    @config
    class Config:
        start: Fraction
        end: Fraction
        steps: PositiveInt

    def __call__(self, ctx: Context) -> float:
        return exponential(self.cfg.start, self.cfg.end, ctx.env_steps, self.cfg.steps)


@register("epsilon", "geometric")
class Geometric(Epsilon):
    """Multiplied by a factor every `updates` updates."""

    @config
    class Config:
        start: Fraction
        factor: PositiveFraction
        updates: PositiveInt

    def __call__(self, ctx: Context) -> float:
        return geometric(self.cfg.start, self.cfg.factor, ctx.updates // self.cfg.updates)
