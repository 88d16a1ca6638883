"""Base class of the part `algo.noise`: exploration noise that is added to the actions of a policy."""

from typing import Any, ClassVar

from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.config.schema import PerDimension
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Source
from rlrun.networks.heads import GaussianPolicy
from rlrun.types import Batch, Spec


class ActionNoise(nn.Module):
    """Base class of the noises. Subclasses are built from a config and the spec of the environments.

    `carry` is that of `Agent.act`. The extras hold the state of a noise that is correlated in time.
    """

    registered: ClassVar[str] = "?"  # the name in configs, set by @register

    def check_policy(self, policy: nn.Module) -> None:
        """Raises ConfigError unless `sample` supports the distribution of this policy."""
        if not isinstance(policy, GaussianPolicy):
            raise ConfigError(f"algo.noise={self.registered}: needs a Gaussian policy; choose algo.noise=none")

    def add(self, action: Tensor, carry: Batch, source: Source) -> tuple[Tensor, Batch]:
        """Returns actions [num_envs, actions] in [-1, 1] plus noise, clipped to [-1, 1], and extras."""
        raise NotImplementedError

    def sample(self, dist: Any, carry: Batch, source: Source) -> tuple[Tensor, Tensor, Batch]:
        """Returns a sample of the policy plus noise [num_envs, ...], its log-probability [num_envs], and extras.

        The log-probability is that of the sum, given the state of the noise before this step. dist: the distribution
        of the policy; a `Normal` for continuous actions.
        """
        raise NotImplementedError


def dimensions(name: str, spec: Spec) -> int:
    """Returns the number of dimensions of continuous actions. Raises ConfigError for other actions.

    name: the noise that was chosen, for the message.
    """
    if not isinstance(spec.action, Box):
        line = f"algo.noise={name}: needs Box actions; this environment has {spec.shown_action}"
        raise ConfigError(f"{line}; choose algo.noise=none")
    return int(spec.action.shape[0])


def per_dimension(key: str, value: PerDimension, dims: int) -> list[float]:
    """Returns the value of a setting in every dimension. Raises ConfigError for a list of another length than dims."""
    if not isinstance(value, list):
        return [value] * dims
    if len(value) != dims:
        line = f"algo.noise.{key}={value}: must be one number, or a list of {dims}"
        raise ConfigError(f"{line}, one for each dimension of the action")
    return value
