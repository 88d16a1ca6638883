"""PPO that learns from demonstrations replayed in its rollouts: PPO+D (Libardi et al. 2020, arXiv 2007.03328).

The demonstrator is assumed to be deterministic: the stored log-probability of its actions is 0. The probability ratio
of PPO is then the policy's probability of the demonstrated action. A positive advantage increases this probability. For
a negative advantage, the clipped objective has no gradient if the probability is below 1 - clip_range. The density of a
Gaussian policy may be above 1; in that case the current log-density is stored instead, so the ratio starts at 1.
"""

import torch
from torch import Tensor

from rlrun.agents.policy.critic_updates import NoCritic
from rlrun.agents.policy.ppo import PPO
from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Distribution
from rlrun.settings import register
from rlrun.tensors import flat
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "ppo_demos")
class PPODemos(Agent):
    """A PPO agent with log-probabilities for demonstrated actions."""

    actions = PPO.actions
    remembers = True
    returns_values = True
    Config = PPO.Config

    def __init__(self, cfg: PPO.Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        if cfg.target_kl is not None:
            why = "demonstrations do not come from an older version of the policy"
            raise ConfigError(f"algo.target_kl={cfg.target_kl}: is not supported by ppo_demos: {why}")
        self.learner = PPO(cfg, spec, parts)
        if isinstance(self.learner.critic, NoCritic):
            raise ConfigError("algo.critic_update=none: ppo_demos ranks failed episodes by a critic's values")

    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        return self.learner.act(obs, carry, explore)

    def update(self, rollout: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        """Returns metrics and the values of the observations, [time, env]."""
        value, log_prob = self.predictions(rollout)
        demonstrated = log_prob.clamp(min=0) * rollout["shown"]
        log_prob = rollout["log_prob"] + demonstrated
        metrics = self.learner.update(rollout | {"log_prob": log_prob}, ctx)
        return metrics, value

    @torch.no_grad()
    def predictions(self, rollout: Batch) -> tuple[Tensor, Tensor]:
        """Returns the values of the observations and the log-probabilities of the actions, both [time, env]."""
        shape = rollout["weight"].shape
        obs = flat(rollout["obs"])
        dist = self.learner.policy(obs)
        log_prob = dist.log_prob(flat(rollout["action"]))
        values = self.learner.critic.network(obs).view(*shape, -1)
        return values[..., 0], log_prob.view(shape)

    def state_values(self, obs: Obs) -> Tensor | None:
        return self.learner.state_values(obs)

    def action_distribution(self, obs: Obs, carry: Batch) -> Distribution:
        return self.learner.action_distribution(obs, carry)

    def report(self) -> Metrics:
        return self.learner.report()
