"""The part `algo.head` of on-policy agents: the output layer of the policy and its action distribution.

A part is called with its Config, the torso of the policy, the action space and `algo.init_std`. It returns a `Policy`.
"""

from typing import Any

from gymnasium import Space, spaces
from torch import nn

from rlrun.config.schema import config
from rlrun.errors import ConfigError
from rlrun.networks.heads import GaussianPolicy, Policy, stochastic_policy
from rlrun.registry import register

GAIN = 0.01  # of the output layer, so that the first policy hardly depends on the observation (arXiv 2006.05990)


@config
class NoSettings:
    """`auto` has no settings of its own."""


@register("head", "auto")
def auto(cfg: Any, torso: nn.Module, space: Space, init_std: float) -> Policy:
    """Returns a Gaussian policy for Box actions and a categorical one for discrete actions."""
    return stochastic_policy(torso, space, GAIN, init_std)


auto.Config = NoSettings  # type: ignore[attr-defined]


@register("head", "gaussian")
class Gaussian(GaussianPolicy):
    """A Gaussian policy, optionally with a constant standard deviation and a mean limited by tanh."""

    @config
    class Config:
        learn_std: bool
        tanh_mean: bool

    def __init__(self, cfg: Config, torso: nn.Module, space: Space, init_std: float):
        if not isinstance(space, spaces.Box):
            raise ConfigError(
                f"algo.head=gaussian: needs Box actions; this environment has {space}; choose algo.head=auto"
            )
        super().__init__(torso, space.shape[0], GAIN, init_std, cfg.learn_std, cfg.tanh_mean)
