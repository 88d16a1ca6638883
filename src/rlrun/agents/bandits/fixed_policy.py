"""A baseline that pulls arms with fixed probabilities and never learns."""

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Categorical
from rlrun.functional.losses import batch_mean
from rlrun.nested import leaves
from rlrun.networks.choices import legal
from rlrun.settings import Fraction, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "fixed_policy")
class FixedPolicy(Agent):
    """Pulls arms with fixed probabilities."""

    actions = Discrete

    @config
    class Config:
        probs: list[Fraction] | None

    cfg: Config

    probs: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        arms = int(spec.action.n)
        probs = torch.tensor(cfg.probs or [1 / arms] * arms)
        if len(probs) != arms or abs(float(probs.sum()) - 1) > 1e-5:
            raise ConfigError(f"algo.probs={cfg.probs}: needs {arms} numbers that sum to 1")
        self.register_buffer("probs", probs)
        self.noise = parts.stream("act")

    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.action_distribution(obs, carry)
        if not explore:
            return dist.mode(), {}
        return dist.sample(dist.noise(self.noise)), {}

    def action_distribution(self, obs: Obs, carry: Batch) -> Categorical:
        batch = next(leaves(obs)).shape[0]  # not len(), which an export would make a constant
        logits = self.probs.log().expand(batch, -1)
        return Categorical(legal(logits, obs))

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        return {"loss/reward": batch_mean(rollout["reward"])}
