"""Actor-critic with generalised advantage estimation (arXiv 1506.02438).

pytest my_algo/
rlrun train algo=./my_algo/my_algo.py env=CartPole env.num_envs=8
rlrun show algo=./my_algo/my_algo.py
"""

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.buffers.consecutive import continues
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.distributions import Distribution
from rlrun.functional.losses import masked_mean, standardise
from rlrun.functional.returns import gae
from rlrun.networks.heads import Value, stochastic_policy
from rlrun.settings import Fraction, NonNegativeFloat, PositiveFloat, config, register
from rlrun.tensors import flat
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "my_algo")
class MyAlgo(Agent):
    """An actor and a critic that take one gradient step per rollout."""

    actions = (Box, Discrete)  # action spaces that the algorithm is defined for
    loop = {"name": "onpolicy", "rollout_steps": 16}  # collects 16 steps in every environment, then calls `update` once

    @config
    class Config:
        gamma: Fraction = 0.99  # discount per step
        gae_lambda: Fraction = 0.95  # 0: one-step advantages; 1: whole returns
        learning_rate: PositiveFloat = 2e-3  # of Adam
        ent_coef: NonNegativeFloat = 0.01  # weight of the entropy of the policy
        max_grad_norm: PositiveFloat = 0.5  # gradient clipping by global norm

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        # parts.torso builds the network that the user chooses; a head turns its features into actions or values
        self.policy = stochastic_policy(parts.torso("actor"), spec.action, gain=0.01)
        self.critic = Value(parts.torso("critic"))
        self.optim = Optim(self.parameters(), cfg.learning_rate, max_grad_norm=cfg.max_grad_norm)
        self.act_noise = parts.stream("act")  # a stream of random numbers, which resumes exactly

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        """Returns actions [num_envs, ...] for observations [num_envs, ...], and extras to store with the step."""
        dist = self.policy(obs)
        if not explore:
            return dist.mode(), {}
        return dist.sample(dist.noise(self.act_noise)), {}

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        """Learns from a rollout [time, env, ...]. `rlrun.types.RolloutBatch` lists its keys."""
        targets = self.targets(rollout)
        return self.learn(flat(rollout | targets))

    @torch.no_grad()
    def targets(self, rollout: Batch) -> Batch:
        """Returns the advantages and the returns that the critic learns, both [time, env]."""
        value = self.critic(rollout["obs"])
        next_value = self.critic(rollout["next_obs"])
        done = ~continues(rollout)  # also true before a masked step, as after a restart of the environment
        advantage = gae(
            rollout["reward"], value, next_value, rollout["terminated"], done, self.cfg.gamma, self.cfg.gae_lambda
        )
        return {"advantage": advantage, "return": advantage + value}

    @kernel
    def learn(self, batch: Batch) -> Metrics:
        """Takes one gradient step on transitions [batch, ...]. Returns metrics, which must be detached."""
        weight = batch["weight"]  # 0 for masked steps
        advantage = standardise(batch["advantage"], weight)
        dist = self.policy(batch["obs"])
        actor_loss = -masked_mean(dist.log_prob(batch["action"]) * advantage, weight)
        error = self.critic(batch["obs"]) - batch["return"]
        critic_loss = 0.5 * masked_mean(error**2, weight)
        entropy = masked_mean(dist.entropy(), weight)
        self.optim.step(actor_loss + critic_loss - self.cfg.ent_coef * entropy)
        return {
            "loss/actor": actor_loss.detach(),
            "loss/critic": critic_loss.detach(),
            "loss/entropy": entropy.detach(),
        }

    def state_values(self, obs: Obs) -> Tensor:
        """Returns what `policy.value(obs)` of a trained run shows, [batch]."""
        value: Tensor = self.critic(obs)
        return value

    def action_distribution(self, obs: Obs, carry: Batch) -> Distribution:
        """Returns what `policy.distribution(obs)` of a trained run shows."""
        dist: Distribution = self.policy(obs)
        return dist
