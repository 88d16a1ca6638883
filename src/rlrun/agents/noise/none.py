"""No exploration noise: actions are those of the policy."""

from typing import Any

from torch import Tensor, nn

from rlrun.agents.noise.action_noise import ActionNoise
from rlrun.config.schema import config
from rlrun.functional.distributions import Source
from rlrun.registry import register
from rlrun.types import Batch, Spec


@register("noise", "none")
class NoNoise(ActionNoise):
    """Adds nothing. It is the only one that supports actions which are not continuous."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__()

    def check_policy(self, policy: nn.Module) -> None:
        pass

    def add(self, action: Tensor, carry: Batch, source: Source) -> tuple[Tensor, Batch]:
        return action, {}

    def sample(self, dist: Any, carry: Batch, source: Source) -> tuple[Tensor, Tensor, Batch]:
        action = dist.sample(dist.noise(source))
        return action, dist.log_prob(action), {}
