"""PPO that learns from demonstrations replayed in its rollouts: PPO+D (Libardi et al. 2020, arXiv 2007.03328).

A demonstrator is taken to choose for certain, with log-probability 0. So a ratio is the probability of the demonstrated
action: it pulls where the advantage is positive and is clipped away where it is not. A density may be above 1; then it
is itself what the ratio starts from.
"""

from typing import Any

import torch
from torch import Tensor

from rlrun.agents.policy.critic_updates import NoCritic
from rlrun.agents.policy.ppo import PPO
from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.nested import flat
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "ppo_demos")
class PPODemos(Agent):
    """A PPO agent, given what to take the demonstrated log-probabilities for. It takes no recurrent network, for
    demonstrations come without the memory they would have been acted on with."""

    actions = PPO.actions
    Config = PPO.Config

    def __init__(self, cfg: PPO.Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        if cfg.target_kl is not None:
            why = "a demonstrator is no older policy to stay near to"
            raise ConfigError(f"algo.target_kl={cfg.target_kl}: is not supported by ppo_demos: {why}")
        self.learner = PPO(cfg, spec, parts)
        if isinstance(self.learner.critic, NoCritic):
            raise ConfigError("algo.critic_update=none: ppo_demos ranks failed episodes by a critic's values")

    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        return self.learner.act(obs, carry, explore)

    def update(self, rollout: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        """Beside the metrics the values of what was seen, [time, env], by which demonstrations are ranked."""
        value, log_prob = self.predictions(rollout)
        demonstrated = log_prob.clamp(min=0) * rollout["shown"]
        return self.learner.update(rollout | {"log_prob": rollout["log_prob"] + demonstrated}, ctx), value

    @torch.no_grad()
    def predictions(self, rollout: Batch) -> tuple[Tensor, Tensor]:
        shape, obs = rollout["weight"].shape, flat(rollout["obs"])
        log_prob = self.learner.policy(obs).log_prob(flat(rollout["action"]))
        return self.learner.critic.network(obs).view(*shape, -1)[..., 0], log_prob.view(shape)
