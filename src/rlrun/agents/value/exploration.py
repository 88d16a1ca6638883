"""How often an agent acts at random: epsilon over the course of a run."""

from typing import Any

from rlrun.config.schema import Fraction, PositiveFraction, PositiveInt, config
from rlrun.functional.schedules import exponential, geometric, linear
from rlrun.registry import register
from rlrun.types import Context


class Epsilon:
    """The probability of a random action at some point of a run."""

    def __init__(self, cfg: Any):
        self.cfg = cfg

    def __call__(self, ctx: Context) -> float:
        raise NotImplementedError


@register("epsilon", "linear")
class Linear(Epsilon):
    """Along a line over the first share of the run, as in Nature DQN."""

    @config
    class Config:
        start: Fraction
        end: Fraction
        fraction: PositiveFraction

    def __call__(self, ctx: Context) -> float:
        return linear(self.cfg.start, self.cfg.end, ctx.progress, self.cfg.fraction)


@register("epsilon", "exponential")
class Exponential(Epsilon):
    """Towards its end with a time constant in environment steps."""

    @config
    class Config:
        start: Fraction
        end: Fraction
        steps: PositiveInt

    def __call__(self, ctx: Context) -> float:
        return exponential(self.cfg.start, self.cfg.end, ctx.env_steps, self.cfg.steps)


@register("epsilon", "geometric")
class Geometric(Epsilon):
    """Multiplied by a factor after every iteration of so many updates."""

    @config
    class Config:
        start: Fraction
        factor: PositiveFraction
        updates: PositiveInt

    def __call__(self, ctx: Context) -> float:
        return geometric(self.cfg.start, self.cfg.factor, ctx.updates // self.cfg.updates)
