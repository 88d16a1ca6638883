"""A contextual bandit agent of one's own: a network predicts the reward of every arm, and the best one is pulled.

rlrun train algo=docs/examples/neural_agent.py env=LinearBandit
"""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.losses import weighted_mean
from rlrun.networks.heads import ActionValues
from rlrun.settings import Fraction, PositiveFloat, config, register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "neural_agent")
class NeuralAgent(Agent):
    """Epsilon-greedy on predicted rewards."""

    actions = Discrete
    loop = {"name": "offpolicy", "warmup_steps": 100, "updates_per_step": 1.0, "batch_size": 64}
    buffer = {"name": "replay", "capacity": 10_000}

    @config
    class Config:
        learning_rate: PositiveFloat = 1e-2  # of Adam
        epsilon: Fraction = 0.05  # probability of a random arm

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.rewards = ActionValues(parts.torso(), int(spec.action.n))  # [batch, arms]
        self.optim = Optim(self.parameters(), cfg.learning_rate)
        self.act_noise = parts.stream("act")

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        rewards = self.rewards(obs)
        if not explore:
            return rewards.argmax(-1), {}
        is_random = self.act_noise.uniform(len(rewards), 1) < self.cfg.epsilon
        scores = torch.where(is_random, self.act_noise.uniform(*rewards.shape), rewards)
        return scores.argmax(-1), {}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        return self.learn(batch)

    @kernel
    def learn(self, batch: Batch) -> Metrics:
        """Takes one gradient step on the squared error of the pulled arms, batch [batch, ...]."""
        predicted = self.rewards(batch["obs"])
        pulled = predicted.gather(1, batch["action"].unsqueeze(-1)).squeeze(-1)
        loss = weighted_mean((pulled - batch["reward"]) ** 2, batch["weight"])
        self.optim.step(loss)
        return {"loss/reward_error": loss.detach()}
