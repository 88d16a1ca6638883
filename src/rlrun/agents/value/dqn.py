"""Deep Q-learning (Mnih et al. 2015, doi 10.1038/nature14236), with double Q-learning (arXiv 1509.06461)
and n-step returns by option."""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.config.schema import Fraction, PositiveFloat, PositiveFraction, PositiveInt, config
from rlrun.core.agent import Agent, kernel
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import huber, weighted_mean
from rlrun.functional.returns import td_target
from rlrun.functional.schedules import linear
from rlrun.networks.heads import Dueling, Head
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "dqn")
class DQN(Agent):
    actions = Discrete

    @config
    class Config:
        gamma: Fraction
        n_step: PositiveInt
        learning_rate: PositiveFloat
        anneal_learning_rate: bool
        double: bool
        dueling: bool
        huber_delta: PositiveFloat | None
        reward_clip: PositiveFloat | None
        max_grad_norm: PositiveFloat | None
        target_tau: PositiveFraction
        target_every: PositiveInt
        epsilon_start: Fraction
        epsilon_end: Fraction
        epsilon_fraction: PositiveFraction

    epsilon: Tensor

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.num_actions = int(spec.action.n)
        self.q = (Dueling if cfg.dueling else Head)(parts.torso(), self.num_actions)
        self.target_q = Target(self.q, cfg.target_tau)
        self.optim = Optim(self.q.parameters(), cfg.learning_rate, max_grad_norm=cfg.max_grad_norm)
        self.register_buffer("epsilon", torch.tensor(cfg.epsilon_start))
        self.act_noise = parts.stream("act")

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        greedy = self.q(obs).argmax(-1)
        if not explore:
            return greedy, {}
        random = self.act_noise.integers(self.num_actions, len(greedy))
        return torch.where(self.act_noise.uniform(len(greedy)) < self.epsilon, random, greedy), {}

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        cfg = self.cfg
        self.epsilon.fill_(linear(cfg.epsilon_start, cfg.epsilon_end, ctx.progress, cfg.epsilon_fraction))
        if cfg.anneal_learning_rate:
            self.optim.learning_rate.fill_(linear(cfg.learning_rate, 0.0, ctx.progress))
        metrics, error = self.update_q(batch)
        if (ctx.updates + 1) % cfg.target_every == 0:
            self.target_q.track()
        return metrics | {"epsilon": self.epsilon.clone()}, error

    @kernel
    def update_q(self, batch: Batch) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            next_q = self.target_q(batch["next_obs"])
            chooser = self.q(batch["next_obs"]) if self.cfg.double else next_q
            next_value = next_q.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)
            target = td_target(batch["reward"], batch["discount"], next_value)
        q = self.q(batch["obs"]).gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1)
        delta = float("inf") if self.cfg.huber_delta is None else self.cfg.huber_delta
        error = q - target
        loss = weighted_mean(huber(error, delta), batch["weight"])
        self.optim.step(loss)
        return {"q_loss": loss.detach(), "q": q.detach().mean()}, error.detach()
