"""Transforms of each reward, without state: `env.transforms=[{name: reward_scale, scale: 0.1}]`."""

from torch import Tensor

from rlrun.core.addon import Transform
from rlrun.errors import ConfigError
from rlrun.settings import config, register
from rlrun.types import Batch, Spec, Step


class RewardTransform(Transform):
    """Base of the transforms of rewards. A subclass writes `per_step`, which may treat each component differently.

    With replay, n-step returns sum transformed rewards. Episode returns in log rows and evaluations are raw.
    """

    changes = True

    def __init__(self, cfg: object, spec: Spec, replays: bool):
        super().__init__(cfg, spec, replays)
        if spec.holds:
            raise ConfigError(
                f"env.transforms: {self.registered} does not support the wrapper hold, which sums rewards"
            )

    def per_step(self, reward: Tensor) -> Tensor:
        raise NotImplementedError

    def of_step(self, step: Step) -> Step:
        return step | {"reward": self.per_step(step["reward"])}

    def relabel(self, batch: Batch) -> Batch:
        if self.replays:  # the buffer has applied `per_step`
            return batch
        return batch | {"reward": self.per_step(batch["reward"])}


@register("transform", "reward_clip")
class RewardClip(RewardTransform):
    """Clips every component of the reward to [low, high]."""

    @config
    class Config:
        low: float = -1.0
        high: float = 1.0

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, replays: bool):
        super().__init__(cfg, spec, replays)
        if cfg.low >= cfg.high:
            raise ConfigError(f"env.transforms: reward_clip: low={cfg.low} must be below high={cfg.high}")

    def per_step(self, reward: Tensor) -> Tensor:
        return reward.clamp(self.cfg.low, self.cfg.high)


@register("transform", "reward_scale")
class RewardScale(RewardTransform):
    """Multiplies every component of the reward by `scale`."""

    @config
    class Config:
        scale: float

    cfg: Config

    def per_step(self, reward: Tensor) -> Tensor:
        return reward * self.cfg.scale


@register("transform", "reward_shift")
class RewardShift(RewardTransform):
    """Adds `bias` to every component of the reward."""

    @config
    class Config:
        bias: float

    cfg: Config

    def per_step(self, reward: Tensor) -> Tensor:
        return reward + self.cfg.bias
