"""Rules in three stages that keep the entropy from falling below a target, as in the Agent Learning Framework (ALF).

*Init*: until the entropy is below a maximum, alpha changes slowly: it decreases while the entropy rises, and increases
half as fast while the entropy falls. *Free*: alpha is constant until the entropy is below the target. *Adjust*: alpha
increases while the entropy falls, and decreases while the entropy rises. Increases are halved while the entropy is
above the target, and decreases are halved while it is below. alpha does not overshoot, because its changes follow the
direction in which the entropy moves, not the distance to the target.
"""

import math
from typing import Any

import torch
from torch import Tensor

from rlrun.agents.entropy.coefficient import EntropyCoefficient, MovingAverage, PerComponent, TargetEntropy
from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean
from rlrun.settings import PositiveFloat, Size, config, register
from rlrun.types import Metrics

INIT, FREE, ADJUST = 0, 1, 2
MIN_LOG_ALPHA = -100.0


@register("entropy", "staged")
class Staged(EntropyCoefficient):
    """An entropy coefficient adjusted in the stages init, free and adjust."""

    @config
    class Config:
        target_entropy: TargetEntropy
        max_entropy: PerComponent
        initial_alpha: PositiveFloat
        min_alpha: float
        skip_free_stage: bool
        very_slow_rate: PositiveFloat
        slow_rate: PositiveFloat
        fast_rate: PositiveFloat
        average_window: Size

    target: Tensor
    log_alpha: Tensor
    rate: Tensor
    stage: Tensor
    above: Tensor
    max_entropy: Tensor

    def __init__(self, cfg: Any, default_target: float):
        super().__init__()
        self.cfg = cfg
        target = cfg.target_entropy
        if target is None:
            target = default_target
        self.register_buffer("target", torch.as_tensor(target), persistent=False)  # a tensor, which may be scheduled
        if cfg.max_entropy is not None and cfg.max_entropy < target:
            raise ConfigError(f"algo.entropy.max_entropy={cfg.max_entropy}: is below the target, {float(target)}")
        self.min_log_alpha = MIN_LOG_ALPHA
        if cfg.min_alpha > 0:
            self.min_log_alpha = math.log(cfg.min_alpha)
        self.average = MovingAverage(cfg.average_window)
        self.register_buffer("log_alpha", torch.tensor(math.log(cfg.initial_alpha)))
        self.register_buffer("rate", torch.tensor(cfg.fast_rate))
        first_stage = INIT
        if cfg.skip_free_stage:
            first_stage = ADJUST
        self.register_buffer("stage", torch.tensor(first_stage))
        self.register_buffer("above", torch.tensor(True))  # whether the entropy was above the target at the last update
        self.register_buffer("max_entropy", torch.tensor(cfg.max_entropy or 0.0))

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.exp()

    @torch.no_grad()
    def adjust(self, entropy: Tensor, weight: Tensor) -> Metrics:
        entropy = masked_mean(entropy, weight)
        filling = self.average.seen < self.cfg.average_window
        previous = torch.where(self.average.seen == 0, entropy, self.average.mean())
        self.average.add(entropy)
        current = self.average.mean()
        falls = (current < previous).float()
        change = self.drift(current, falls, filling) + self.steer(current, falls)
        self.log_alpha.add_(change).clamp_(min=self.min_log_alpha)
        return {"loss/alpha": self.alpha, "loss/entropy_stage": self.stage.float()}

    def drift(self, entropy: Tensor, falls: Tensor, filling: Tensor) -> Tensor:
        """Returns the change of log alpha in stage init, 0 in other stages; starts stage free when init ends.

        Init ends when the entropy is below its maximum. Without `max_entropy`, the maximum is estimated from the first
        `average_window` updates.
        """
        drifting = self.stage == INIT
        if self.cfg.max_entropy is None:
            guess = torch.minimum(0.8 * entropy, entropy / 0.8)  # below the entropy, whatever its sign
            max_entropy = torch.where(filling & drifting, guess, self.max_entropy)
            self.max_entropy.copy_(max_entropy)
            drifting = drifting & (self.average.seen == self.cfg.average_window)
        self.stage.add_(drifting & (entropy < self.max_entropy))
        direction = 1.5 * falls - 1  # 0.5 if the entropy falls, -1 if it rises
        return drifting * direction * self.cfg.very_slow_rate

    def steer(self, entropy: Tensor, falls: Tensor) -> Tensor:
        """Returns the change of log alpha in stage adjust, 0 in other stages; starts stage adjust when free ends.

        The rate of change decreases by a tenth whenever the entropy crosses the target, down to slow_rate. It is
        fast_rate while the entropy is far below the target.
        """
        above = entropy > self.target
        crossed = (self.stage == ADJUST) & (above != self.above)
        self.stage.add_((self.stage == FREE) & (entropy < self.target))
        adjusting = self.stage == ADJUST
        rate = torch.where(crossed, 0.9 * self.rate, self.rate)
        rate = rate.clamp(min=self.cfg.slow_rate)
        far_below = torch.where(self.target > 0, 0.5, 2.0) * self.target
        rate = torch.where(entropy < far_below, self.cfg.fast_rate, rate)
        self.rate.copy_(torch.where(adjusting, rate, self.rate))
        self.above.copy_(above)
        up = torch.where(above, 0.5, 1.0)
        down = torch.where(above, 1.0, 0.5)
        direction = up * falls - down * (1 - falls)
        return adjusting * direction * self.rate
