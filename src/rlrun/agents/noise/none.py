"""No exploration noise: actions are those of the policy, or uniform ones."""

from typing import Any

from torch import Tensor, nn

from rlrun.agents.noise.action_noise import ActionNoise
from rlrun.functional.distributions import Source
from rlrun.settings import config, register
from rlrun.types import Batch


@register("noise", "none")
class NoNoise(ActionNoise):
    """Adds nothing. No other noise supports actions that are not continuous."""

    @config
    class Config(ActionNoise.Config):
        pass

    def check_policy(self, policy: nn.Module) -> None:
        pass

    def noisy(self, action: Tensor, carry: Batch, source: Source) -> tuple[Tensor, Batch]:
        return action, {}

    def noisy_sample(self, dist: Any, carry: Batch, source: Source) -> tuple[Tensor, Any, Batch]:
        return dist.sample(dist.noise(source)), dist, {}
