"""Base class of the part `algo.noise`: exploration noise that is added to the actions of a policy."""

import math
from typing import Any, ClassVar

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.functional.distributions import Source
from rlrun.networks.heads import GaussianPolicy
from rlrun.settings import Fraction, PerDimension, config
from rlrun.types import Batch, Spec


class ActionNoise(nn.Module):
    """Base class of the noises. Subclasses are built from a config and the spec of the environments.

    With probability `random_action`, an action is replaced by a uniform one (arXiv 1802.09464). `carry` is
    that of `Agent.act`. The extras hold the state of a noise that is correlated in time.
    """

    registered: ClassVar[str] = "?"  # the name in configs, set by @register

    @config
    class Config:
        random_action: Fraction

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__()
        self.random_action = cfg.random_action
        if self.random_action > 0 and not (isinstance(spec.action, Box) and spec.action.is_bounded()):
            line = f"algo.noise.random_action={self.random_action}: needs Box actions with finite bounds"
            raise ConfigError(f"{line}; this environment has {spec.shown_action}")

    def check_policy(self, policy: nn.Module) -> None:
        """Raises ConfigError unless `sample` supports the distribution of this policy."""
        if not isinstance(policy, GaussianPolicy):
            raise ConfigError(f"algo.noise={self.registered}: needs a Gaussian policy; choose algo.noise=none")

    def add(self, action: Tensor, carry: Batch, source: Source) -> tuple[Tensor, Batch]:
        """Returns the actions to execute for actions [num_envs, actions] in [-1, 1] of the policy, and extras."""
        action, extras = self.noisy(action, carry, source)
        return self.partly_random(action, source), extras

    def sample(self, dist: Any, carry: Batch, source: Source) -> tuple[Tensor, Tensor, Batch]:
        """Returns actions to execute [num_envs, ...], their log-probabilities [num_envs], and extras.

        The log-probability includes noise and random actions, given the state of the noise before this step. dist: the
        distribution of the policy; a `Normal` for continuous actions.
        """
        action, noisy_dist, extras = self.noisy_sample(dist, carry, source)
        action = self.partly_random(action, source)
        return action, self.log_prob(noisy_dist, action), extras

    def noisy(self, action: Tensor, carry: Batch, source: Source) -> tuple[Tensor, Batch]:
        """Returns actions [num_envs, actions] plus noise, clipped to [-1, 1], and extras."""
        raise NotImplementedError

    def noisy_sample(self, dist: Any, carry: Batch, source: Source) -> tuple[Tensor, Any, Batch]:
        """Returns a sample of the policy plus noise [num_envs, ...], the distribution of this sum, and extras."""
        raise NotImplementedError

    def partly_random(self, action: Tensor, source: Source) -> Tensor:
        """Replaces each of the actions [num_envs, ...] by a uniform one with probability `random_action`."""
        if self.random_action == 0:
            return action
        uniform = 2 * source.uniform(*action.shape) - 1
        is_random = source.uniform(len(action), 1) < self.random_action
        return torch.where(is_random, uniform, action)

    def log_prob(self, dist: Any, action: Tensor) -> Tensor:
        """Returns log((1 - p) dist(a) + p u(a)) [num_envs] with p = `random_action` and the uniform density u."""
        if self.random_action == 0:
            return dist.log_prob(action)
        log_p = math.log(self.random_action)
        is_inside = (action.abs() <= 1).all(-1)
        uniform = torch.where(is_inside, log_p - action.shape[-1] * math.log(2), -torch.inf)
        if self.random_action == 1:
            return uniform
        return torch.logaddexp(math.log1p(-self.random_action) + dist.log_prob(action), uniform)


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
