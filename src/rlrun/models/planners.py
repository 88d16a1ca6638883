"""The part `algo.planner`: chooses the first action of a cheap sequence of actions, and plans anew in every step.

Without exploring, the noise of candidates is fixed: the same observation and carry lead to the same action.
"""

from typing import ClassVar

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.functional.planning import Cost, cem, correlated, mppi, random_shooting, shifted
from rlrun.settings import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, Units, config, register
from rlrun.types import Batch

PLAN = "carry.plan"


class Planner(nn.Module):
    """Base class of planners of actions in a Box.

    fixed: draws the noise of candidates for acting without exploring. draws: the noise for exploring.
    """

    registered: ClassVar[str] = "?"

    @config
    class Config:
        candidates: Units
        horizon: Units

    low: Tensor
    high: Tensor
    noise: Tensor

    def __init__(self, cfg: Config, action: Box, fixed: Stream, draws: Stream):
        super().__init__()
        self.cfg, self.draws = cfg, draws
        self.register_buffer("low", torch.as_tensor(action.low), persistent=False)
        self.register_buffer("high", torch.as_tensor(action.high), persistent=False)
        self.register_buffer("noise", self.drawn(fixed, 1), persistent=False)

    @property
    def most_candidates(self) -> int:
        """The largest number of candidates that a cost function receives at once."""
        return self.cfg.candidates

    def drawn(self, stream: Stream, rows: int) -> Tensor:
        """Returns the noise of one plan for each row."""
        raise NotImplementedError

    def plan(self, cost: Cost, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        """Returns the actions to take [B, A], and extras for the carry of the next call."""
        rows = len(carry["first"])
        noise = self.noise
        if explore:
            noise = self.drawn(self.draws, rows)
        return self.planned(cost, carry, noise)

    def planned(self, cost: Cost, carry: Batch, noise: Tensor) -> tuple[Tensor, Batch]:
        """Returns what `plan` does, with the given noise."""
        raise NotImplementedError

    def uniform(self, stream: Stream, rows: int) -> Tensor:
        """Draws a uniform action for each row, [rows, A]."""
        return self.low + (self.high - self.low) * stream.uniform(rows, len(self.low))

    def with_random(self, action: Tensor, epsilon: Tensor, stream: Stream) -> Tensor:
        """Returns actions [B, A], each replaced by a uniform one with the probability epsilon []."""
        is_random = stream.uniform(len(action)) < epsilon
        drawn = self.uniform(stream, len(action))
        return torch.where(is_random.unsqueeze(-1), drawn, action)

    def middle(self) -> Tensor:
        """Returns the middle of the range of every action, [A]."""
        return (self.low + self.high) / 2


@register("planner", "random_shooting")
class RandomShooting(Planner):
    """The first action of the cheapest of uniform sequences (Nagabandi et al. 2018, arXiv 1708.02596)."""

    @config
    class Config(Planner.Config):
        pass

    def drawn(self, stream: Stream, rows: int) -> Tensor:
        return stream.uniform(rows, self.cfg.candidates, self.cfg.horizon, len(self.low))

    def planned(self, cost: Cost, carry: Batch, noise: Tensor) -> tuple[Tensor, Batch]:
        sequence = random_shooting(cost, noise, self.low, self.high, len(carry["first"]))
        return sequence[:, 0], {}


class Refining(Planner):
    """Base class of planners that improve a normal distribution of sequences, beginning with the last plan.

    At the first step of an episode, the plan is the middle of the range.
    """

    @config
    class Config(Planner.Config):
        iterations: Units
        elites: Units
        correlation: Fraction
        init_std: PositiveFloat | None

    cfg: Config

    def __init__(self, cfg: Config, action: Box, fixed: Stream, draws: Stream):
        super().__init__(cfg, action, fixed, draws)
        if cfg.elites > cfg.candidates:
            raise ConfigError(f"algo.planner.elites={cfg.elites}: there are only {cfg.candidates} candidates")

    def drawn(self, stream: Stream, rows: int) -> Tensor:
        cfg = self.cfg
        noise = stream.normal(rows, cfg.iterations, cfg.candidates, cfg.horizon, len(self.low))
        if cfg.correlation:
            noise = correlated(noise, cfg.correlation)
        return noise.transpose(0, 1)

    def start(self, carry: Batch) -> tuple[Tensor, Tensor]:
        """Returns mean and standard deviation [B, H, A] of the first candidates."""
        rows, horizon = len(carry["first"]), self.cfg.horizon
        mean = self.middle().expand(rows, horizon, -1)
        if PLAN in carry:
            mean = torch.where(carry["first"][:, None, None], mean, shifted(carry[PLAN]))
        std = (self.high - self.low) / 2
        if self.cfg.init_std is not None:
            std = torch.full_like(std, self.cfg.init_std)
        return mean, std.expand_as(mean)


@register("planner", "cem")
class CrossEntropy(Refining):
    """The cross-entropy method (Chua et al. 2018, arXiv 1805.12114); with `keep` and `correlation` as in Pinneri et al.
    2020 (arXiv 2008.06389)."""

    @config
    class Config(Refining.Config):
        tau: Fraction
        epsilon: NonNegativeFloat
        keep: NonNegativeInt

    cfg: Config

    def __init__(self, cfg: Config, action: Box, fixed: Stream, draws: Stream):
        super().__init__(cfg, action, fixed, draws)
        if cfg.keep > cfg.elites:
            raise ConfigError(f"algo.planner.keep={cfg.keep}: there are only {cfg.elites} elites")

    @property
    def most_candidates(self) -> int:
        if self.cfg.keep:
            return self.cfg.candidates + self.cfg.keep + 1  # the kept ones and the mean
        return self.cfg.candidates

    def planned(self, cost: Cost, carry: Batch, noise: Tensor) -> tuple[Tensor, Batch]:
        cfg = self.cfg
        mean, std = self.start(carry)
        plan = cem(cost, mean, std**2, noise, self.low, self.high, cfg.elites, cfg.tau, cfg.epsilon, cfg.keep)
        return plan.actions[:, 0], {PLAN: plan.mean}


@register("planner", "mppi")
class PathIntegral(Refining):
    """Model predictive path integral control (Williams et al. 2015, arXiv 1509.01149)."""

    @config
    class Config(Refining.Config):
        temperature: PositiveFloat
        min_std: PositiveFloat
        max_std: PositiveFloat

    cfg: Config

    def planned(self, cost: Cost, carry: Batch, noise: Tensor) -> tuple[Tensor, Batch]:
        cfg = self.cfg
        mean, std = self.start(carry)
        plan = mppi(cost, mean, std, noise, self.low, self.high, cfg.elites, cfg.temperature, cfg.min_std, cfg.max_std)
        return plan.actions[:, 0], {PLAN: plan.mean}
