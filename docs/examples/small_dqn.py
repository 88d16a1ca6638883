"""Deep Q-learning (Mnih et al. 2015) with a slow target network.

rlrun train algo=docs/examples/small_dqn.py env=CartPole
"""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import masked_mean
from rlrun.networks.heads import ActionValues
from rlrun.settings import Fraction, PositiveFloat, config, register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "small_dqn")
class SmallDQN(Agent):
    """Learns the value of every action from replay."""

    actions = Discrete
    loop = {"name": "offpolicy", "warmup_steps": 500, "updates_per_step": 0.5, "batch_size": 64}
    buffer = {"name": "replay", "capacity": 50_000}

    @config
    class Config:
        gamma: Fraction = 0.99  # discount per step
        learning_rate: PositiveFloat = 1e-3  # of Adam
        tau: Fraction = 0.01  # Polyak averaging coefficient
        epsilon_decay: Fraction = 0.999  # factor of epsilon after every update

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.q = ActionValues(parts.torso(), int(spec.action.n))
        self.target_network = Target(self.q, cfg.tau)
        self.optim = Optim(self.q.parameters(), cfg.learning_rate)
        self.register_buffer("epsilon", torch.tensor(1.0))  # a number that changes is a buffer
        self.act_noise = parts.stream("act")

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        values = self.q(obs)
        best = values.argmax(-1)
        if not explore:
            return best, {}
        random = self.act_noise.integers(values.shape[-1], len(values))
        is_random = self.act_noise.uniform(len(values)) < self.epsilon
        return torch.where(is_random, random, best), {}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """Learns from transitions [batch, ...]. `rlrun.types.Transition` lists its keys."""
        self.epsilon.mul_(self.cfg.epsilon_decay).clamp_(min=0.05)
        metrics = self.learn(batch)
        self.target_network.track()
        return metrics

    @kernel
    def learn(self, batch: Batch) -> Metrics:
        with torch.no_grad():
            discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
            target = batch["reward"] + discount * self.target_network(batch["next_obs"]).amax(-1)
        action = batch["action"].long().unsqueeze(-1)
        value = self.q(batch["obs"]).gather(-1, action).squeeze(-1)
        loss = 0.5 * masked_mean((value - target) ** 2, batch["weight"])
        self.optim.step(loss)
        return {"loss/critic": loss.detach()}
