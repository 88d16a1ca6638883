"""The parts `algo.head` of on-policy agents and `algo.actor` of continuous SARSA: output layer and action distribution.

A head is called with its Config, the torso of the policy, the action space and `algo.init_std`; it is a `PolicyHead`.
An actor is called with its Config, the torso and the number of action dimensions. Its distributions return actions in
[-1, 1] and their log-probabilities, like `SquashedNormal`.
"""

from gymnasium import Space, spaces
from torch import nn

from rlrun.errors import ConfigError
from rlrun.functional.distributions import Deterministic
from rlrun.networks.heads import (
    DeterministicPolicy,
    GaussianPolicy,
    Head,
    PolicyHead,
    SquashedGaussianPolicy,
    stochastic_policy,
)
from rlrun.settings import config, register
from rlrun.types import Obs

GAIN = 0.01  # of the output layer, so that the first policy hardly depends on the observation (arXiv 2006.05990)


@config
class NoSettings:
    """`auto` and the actors have no settings of their own."""


@register("head", "auto")
def auto(cfg: NoSettings, torso: nn.Module, space: Space, init_std: float) -> PolicyHead:
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


@register("actor", "squashed_gaussian")
def squashed_gaussian(cfg: NoSettings, torso: nn.Module, actions: int) -> Head:
    """Returns a Gaussian policy squashed by tanh, as in SAC."""
    return SquashedGaussianPolicy(torso, actions)


squashed_gaussian.Config = NoSettings  # type: ignore[attr-defined]


@register("actor", "deterministic")
class DeterministicActor(DeterministicPolicy):
    """A deterministic policy, as in DDPG. It returns its action as a distribution."""

    Config = NoSettings

    def __init__(self, cfg: NoSettings, torso: nn.Module, actions: int):
        super().__init__(torso, actions)

    def forward(self, *inputs: Obs) -> Deterministic:  # type: ignore[override]
        action = super().forward(*inputs)
        return Deterministic(action)
