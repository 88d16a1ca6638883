"""Soft Q-learning over discrete actions (Haarnoja et al. 2017, arXiv 1702.08165): SAC without an actor.

For discrete actions the policy that SAC's actor approximates is known: pi(a|s) = softmax(Q(s, a) / alpha), with the
minimum of the critics as Q. Only the critics and alpha learn.
"""

from typing import Annotated

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.agents.critics.ensemble import Critic
from rlrun.agents.critics.expected import ExpectedReturn
from rlrun.agents.critics.reward_columns import ActingWeights, critic_ensemble, expectation
from rlrun.agents.entropy.coefficient import EntropyCoefficient, default_target, resolve_target_entropy
from rlrun.agents.entropy.rewards import EntropyReward
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.functional.distributions import Categorical
from rlrun.functional.losses import batch_mean
from rlrun.networks.choices import legal
from rlrun.networks.heads import DiscreteCritic
from rlrun.settings import NStepReturns, Part, PositiveFloat, PositiveFraction, PositiveInt, Scheduled, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "soft_q")
class SoftQ(Agent):
    """Soft Q-learning with an ensemble of critics and a learned temperature."""

    actions = Discrete
    acts_with = ("critic", "ensemble", "entropy", "reward_weights")
    explores_with = ("entropy",)
    remembers = True
    reward_vectors = True
    reward_discounts = True
    cfg: "Config"

    @config
    class Config(NStepReturns):
        tau: PositiveFraction
        target_every: PositiveInt
        learning_rate: Scheduled[PositiveFloat]
        max_grad_norm: PositiveFloat | None
        critic: Annotated[dict[str, object], Part("critic")]
        entropy: Annotated[dict[str, object], Part("entropy")]
        entropy_reward: Annotated[dict[str, object], Part("entropy_reward")]

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.ensemble = critic_ensemble(parts, cfg.critic, ExpectedReturn, spec, entropy=True)
        self.reward_weights = ActingWeights(spec)
        members = self.ensemble.members
        torso = parts.torso("critic", members=members)
        self.critic = DiscreteCritic(torso, int(spec.action.n), members, self.ensemble.shape)
        self.target_critic = Target(self.critic, cfg.tau)
        entropy = resolve_target_entropy(cfg.entropy, spec.action)
        self.entropy = parts.part("entropy", entropy, EntropyCoefficient, default_target(spec.action))
        self.entropy_reward = parts.part("entropy_reward", cfg.entropy_reward, EntropyReward, spec, cfg)
        self.num_next_steps = self.entropy_reward.num_next_steps
        self.optim = Optim(self.critic.parameters(), cfg.learning_rate, max_grad_norm=cfg.max_grad_norm)
        self.act_noise = parts.stream("act")
        self.update_noise = parts.stream("update")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.distribution(obs)
        if not explore:
            return dist.mode(), {}
        return dist.sample(dist.noise(self.act_noise)), {}

    def distribution(self, obs: Obs) -> Categorical:
        """Returns pi(a|s) = softmax(Q(s, a) / alpha) over the legal actions (eq. 6)."""
        z = self.critic(obs)
        q = self.ensemble.actor_value(z, self.reward_weights.values)
        return Categorical(legal(q / self.entropy.temperature, obs))

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        self.reward_weights.follow(batch)
        batch = self.entropy_reward.within(batch, self.distribution, self.entropy.alpha, self.update_noise)
        members = self.ensemble.draw_members(self.update_noise)
        metrics, priority = self.update_critic(batch, members)
        metrics |= self.update_alpha(batch)
        self.target_critic.track_every(self.cfg.target_every, ctx.updates + 1)
        return metrics, priority

    @kernel
    def update_critic(self, batch: Batch, members: Tensor | None = None) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            target_q = self.target_q(batch, self.target_critic.select(members))
        z = self.critic(batch["obs"], batch["action"])  # [members, batch, ...]
        loss, metrics, priority = self.ensemble.regress(z, target_q, batch["weight"])
        self.optim.step(loss)
        return metrics, priority

    def target_q(self, batch: Batch, target_critic: Critic) -> Tensor:
        """Returns the target that stands for r + gamma^n sum_a pi(a|s') (Q(s', a) - alpha log pi(a|s')): the soft value
        of the next state is an exact expectation."""
        dist = self.distribution(batch["next_obs"])
        next_z = target_critic(batch["next_obs"])
        next_q = self.ensemble.target_return(next_z, batch.get("reward_weights"))
        next_q = expectation(dist, next_q)
        cost = self.entropy_reward.cost(-dist.entropy(), batch["weight"], self.entropy)
        discount = self.ensemble.discount(self.cfg.gamma, batch)  # gamma^n (1 - terminated)
        return self.ensemble.backup(next_q, batch["reward"], discount, cost)

    @kernel
    def update_alpha(self, batch: Batch) -> Metrics:
        with torch.no_grad():
            entropy = self.distribution(batch["obs"]).entropy()
        metrics = {"loss/entropy": batch_mean(entropy)}
        return metrics | self.entropy.adjust(entropy, batch["weight"])

    def action_values(self, obs: Obs, action: Tensor) -> Tensor:
        z = self.critic(obs)
        return self.ensemble.value(z).mean(0)

    def action_distribution(self, obs: Obs, carry: Batch) -> Categorical:
        return self.distribution(obs)
