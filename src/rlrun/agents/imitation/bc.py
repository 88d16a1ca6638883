"""Behaviour cloning (Pomerleau 1988, "ALVINN").

A stochastic policy maximises the likelihood of the demonstrated actions. A deterministic policy, which is available for
continuous actions, minimises the squared error. A recurrent policy learns from sequences whose hidden state begins at 0
(`network.start=zero`), because data sets hold no hidden states.
"""

from typing import Literal

from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Distribution
from rlrun.functional.losses import cloning_error, weighted_mean
from rlrun.networks.heads import DeterministicPolicy, Head, stochastic_policy
from rlrun.settings import NonNegativeFloat, PositiveFloat, Scheduled, config, register
from rlrun.spaces import MixedSpace
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "bc")
class BC(Agent):
    """Behaviour cloning with a stochastic or a deterministic policy."""

    actions = (Box, Discrete, MultiDiscrete, MultiBinary, MixedSpace)
    acts_with = ("actor",)
    remembers = True

    @config
    class Config:
        policy: Literal["stochastic", "deterministic"]
        learning_rate: Scheduled[PositiveFloat]
        weight_decay: NonNegativeFloat
        max_grad_norm: PositiveFloat | None

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.actor: Head
        if cfg.policy == "stochastic":
            self.actor = stochastic_policy(parts.torso(), spec.action)
        elif isinstance(spec.action, Box) and spec.action.is_bounded():
            self.actor = DeterministicPolicy(parts.torso(), spec.action.shape[0])
        else:
            raise ConfigError("algo.policy=deterministic: is for Box actions with finite bounds")
        self.optim = Optim(
            self.actor.parameters(), cfg.learning_rate, weight_decay=cfg.weight_decay, max_grad_norm=cfg.max_grad_norm,
        )  # fmt: skip
        self.act_noise = parts.stream("act")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if isinstance(dist, Tensor):  # a deterministic policy
            return dist, {}
        if not explore:
            return dist.mode(), {}
        return dist.sample(dist.noise(self.act_noise)), {}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        return self.update_actor(batch)

    @kernel
    def update_actor(self, batch: Batch) -> Metrics:
        error = cloning_error(self.actor(batch["obs"]), batch["action"])
        loss = weighted_mean(error, batch["weight"])
        self.optim.step(loss)
        return {"loss/cloning": loss.detach()}

    def action_distribution(self, obs: Obs, carry: Batch) -> Distribution | None:
        dist = self.actor(obs)
        if isinstance(dist, Tensor):  # a deterministic policy
            return None
        return dist
