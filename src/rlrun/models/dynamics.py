"""The part `algo.dynamics`: predicts the next observation of an observation and an action, for planning.

Shapes: n members, R rows, D size of an observation, A size of an action. Imagined states are [n, R, D].
"""

from typing import Annotated, ClassVar

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.core.state import RunningMoments
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Normal
from rlrun.networks.heads import Head
from rlrun.networks.inputs import FlattenInputs
from rlrun.networks.recurrent import is_recurrent
from rlrun.settings import Part, PositiveFloat, Scheduled, Units, config, register, registry
from rlrun.types import Batch, Equations, Spec

BOUND_PENALTY = 0.01  # weight of the penalty on the range of the learned bounds of log-variances


class Dynamics(nn.Module):
    """Base class of dynamics. Its holder has the optimiser."""

    registered: ClassVar[str] = "?"
    members: int = 1
    particles: int = 1  # imagined trajectories of each sequence of actions and member
    learning_rate: float | Tensor
    learns: ClassVar[bool] = True  # whether it has a loss
    samples: ClassVar[bool] = False  # whether `step` reads noise

    def start(self, obs: Tensor, copies: int) -> Tensor:
        """Returns the imagined states [n, B * copies, D] of observations [B, D], as many of each as `copies`."""
        rows = obs.repeat_interleave(copies, 0)
        return rows.expand(self.members, *rows.shape)

    def step(self, state: Tensor, action: Tensor, noise: Tensor | None) -> Tensor:
        """Returns the next imagined states [n, R, D]. action [R, ...]; noise [n, R, D]: normal, if it is read."""
        raise NotImplementedError

    def loss(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Returns the loss of each row of each member [n, R]. obs, next_obs [n, R, D]; action [n, R, ...]."""
        raise NotImplementedError

    def observe(self, batch: Batch) -> None:
        """Adds transitions [B, ...] to the statistics with which inputs and changes are normalised."""


@register("dynamics", "deterministic")
class DeterministicDynamics(Dynamics):
    """next = obs + net(obs, action), an ensemble of networks with different data (Chua et al. 2018, arXiv 1805.12114).

    With `normalize`, the network reads observations that are divided by running standard deviations, and predicts
    changes that are: else a change is a small output beside a large input.
    """

    @config
    class Config:
        members: Units
        learning_rate: Scheduled[PositiveFloat]
        normalize: bool
        network: Annotated[dict[str, object], Part("network")]

    outputs_per_dimension = 1

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__()
        self.cfg, self.members, self.learning_rate = cfg, cfg.members, cfg.learning_rate
        name = str(cfg.network["name"])
        if is_recurrent(name):
            why = "imagined states have no memory; those of algo=latent_mbrl may have one"
            raise ConfigError(f"algo.dynamics.network={name}: is not supported, because {why}")
        self.flat_action = FlattenInputs(spec.action)
        (self.size,) = spec.obs.shape
        inputs = Box(-np.inf, np.inf, (self.size + self.flat_action.size,), np.float32)
        torso = registry.build("network", cfg.network, [inputs], cfg.members, path="algo.dynamics.network")
        self.network = Head(torso, self.size * self.outputs_per_dimension, cfg.members)
        self.of_obs = RunningMoments((self.size,))
        self.of_change = RunningMoments((self.size,))

    def outputs(self, obs: Tensor, action: Tensor) -> Tensor:
        """Returns the outputs of all networks [n, R, outputs], for obs [n, R, D] and action [R, ...] or [n, R, ...]."""
        mean, scale = self.scales(self.of_obs)
        flat = self.flat_action(action)
        rows = torch.cat([(obs - mean) / scale, flat.expand(*obs.shape[:-1], -1)], -1)
        outputs: Tensor = self.network(rows)
        return outputs

    def scales(self, moments: RunningMoments) -> tuple[Tensor, Tensor]:
        """Returns mean and standard deviation of every dimension, 0 and 1 without `normalize`."""
        if not self.cfg.normalize:
            return torch.zeros_like(moments.mean).float(), torch.ones_like(moments.var).float()
        return moments.mean.float(), moments.var.sqrt().clamp(min=1e-6).float()

    def observe(self, batch: Batch) -> None:
        is_kept = batch["weight"] > 0
        obs, next_obs = batch["obs"][is_kept], batch["next_obs"][is_kept]
        self.of_obs.add(obs)
        self.of_change.add(next_obs - obs)

    def step(self, state: Tensor, action: Tensor, noise: Tensor | None) -> Tensor:
        _, scale = self.scales(self.of_change)
        return state + scale * self.outputs(state, action)

    def loss(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        _, scale = self.scales(self.of_change)
        error = self.outputs(obs, action) - (next_obs - obs) / scale
        return 0.5 * (error**2).mean(-1)


@register("dynamics", "stochastic")
class StochasticDynamics(DeterministicDynamics):
    """next = obs + change, change ~ N(mu(obs, action), diag sigma^2(obs, action)).

    Softplus bounds log sigma^2 between limits that are learned, with a penalty on their distance (Chua et al. 2018,
    appendix A.1).
    """

    samples = True
    outputs_per_dimension = 2

    @config
    class Config(DeterministicDynamics.Config):
        particles: Units

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__(cfg, spec)
        self.particles = cfg.particles
        self.min_log_var = nn.Parameter(torch.full((self.size,), -10.0))
        self.max_log_var = nn.Parameter(torch.full((self.size,), 0.5))

    def change(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and log-variance [n, R, D] of the changes, divided by their scale."""
        mean, log_var = self.outputs(obs, action).chunk(2, -1)
        log_var = self.max_log_var - F.softplus(self.max_log_var - log_var)
        return mean, self.min_log_var + F.softplus(log_var - self.min_log_var)

    def predict(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and standard deviation [n, R, D] of the next observations."""
        _, scale = self.scales(self.of_change)
        mean, log_var = self.change(obs, action)
        return obs + scale * mean, scale * (0.5 * log_var).exp()

    def step(self, state: Tensor, action: Tensor, noise: Tensor | None) -> Tensor:
        mean, std = self.predict(state, action)
        if noise is None:
            return mean
        return mean + std * noise

    def loss(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        _, scale = self.scales(self.of_change)
        mean, log_var = self.change(obs, action)
        log_prob = Normal(mean, 0.5 * log_var).log_prob((next_obs - obs) / scale)
        penalty = BOUND_PENALTY * (self.max_log_var.sum() - self.min_log_var.sum())
        return penalty - log_prob


@register("dynamics", "given")
class GivenDynamics(Dynamics):
    """The equations of the environment itself."""

    learns = False

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__()
        equations = known(spec)
        if equations is None:
            raise ConfigError(f"algo.dynamics={self.registered}: this environment has no equations of its own")
        self.equations = equations

    def step(self, state: Tensor, action: Tensor, noise: Tensor | None) -> Tensor:
        return self.equations.step(state, action.expand(*state.shape[:-1], -1))


def known(spec: Spec) -> Equations | None:
    """Returns the equations of the environment, None if they are not known or the agent sees other observations."""
    if spec.equations is None or spec.equations.obs != spec.obs:
        return None
    return spec.equations


def is_vector(obs: Space) -> bool:
    """Returns whether an observation is one vector of numbers, whose changes dynamics predict."""
    return isinstance(obs, Box) and len(obs.shape) == 1 and obs.dtype != np.uint8
