"""Deep Q-learning (Mnih et al. 2015, doi 10.1038/nature14236).

Options add double Q-learning (arXiv 1509.06461), dueling networks (arXiv 1511.06581), noisy networks (arXiv 1706.10295)
and n-step returns; `algo.critic` selects C51 or QR-DQN, and the number of critics, whose minimum is the target. The
combination of these options with C51 and prioritised replay is Rainbow (arXiv 1710.02298).
"""

from typing import Annotated, Literal

import torch
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from rlrun.agents.critics.ensemble import Critic, Ensemble
from rlrun.agents.critics.reward_columns import ActingWeights, critic_ensemble
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.random import Stream
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import batch_mean, sum_over_members
from rlrun.functional.priorities import mean_absolute
from rlrun.networks.choices import legal
from rlrun.networks.heads import ActionValues, Dueling, gather_action
from rlrun.networks.noisy import Noisy
from rlrun.settings import (
    Fraction,
    NStepReturns,
    Part,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Scheduled,
    Units,
    config,
    register,
)
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "dqn")
class DQN(Agent):
    """Deep Q-learning with an epsilon-greedy policy, whose values may be noisy."""

    actions = Discrete
    acts_with = ("q", "ensemble", "reward_weights")
    remembers = True
    reward_vectors = True
    reward_discounts = True

    @config
    class Config(NStepReturns):
        learning_rate: Scheduled[PositiveFloat]
        optimizer_eps: PositiveFloat
        double: bool
        dueling: bool
        noisy_std: PositiveFloat | None
        noisy_layers: Units | None
        max_grad_norm: PositiveFloat | None
        tau: PositiveFraction
        target_every: PositiveInt
        target_unit: Literal["updates", "steps"]
        critic: Annotated[dict[str, object], Part("critic")]
        epsilon: Scheduled[Fraction]

    cfg: Config
    epsilon: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.ensemble = critic_ensemble(parts, cfg.critic, Ensemble, spec)
        self.reward_weights = ActingWeights(spec)
        self.register_buffer("epsilon", torch.as_tensor(cfg.epsilon), persistent=False)
        head: type[ActionValues] = ActionValues
        if cfg.dueling:
            head = Dueling
        members: int | None = self.ensemble.members
        if members == 1:
            members = None
        torso = parts.torso(members=members)
        self.q: nn.Module = head(torso, int(spec.action.n), members, self.ensemble.shape)
        if cfg.noisy_std is not None:
            self.q = Noisy(self.q, cfg.noisy_std, cfg.noisy_layers)
        self.target_network = Target(self.q, cfg.tau)
        self.optim = Optim(
            self.q.parameters(), cfg.learning_rate, eps=cfg.optimizer_eps, max_grad_norm=cfg.max_grad_norm
        )
        self.act_noise = parts.stream("act")
        self.update_noise = parts.stream("update")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        if not explore:
            values = self.values(obs)
            return values.argmax(-1), {}
        values = self.values(obs, *self.noise(self.act_noise))
        random = legal(self.act_noise.uniform(*values.shape), obs).argmax(-1)  # uniform over the legal actions
        is_random = self.act_noise.uniform(len(values)) < self.epsilon
        return torch.where(is_random, random, values.argmax(-1)), {}

    def values(self, obs: Obs, *noise: Tensor) -> Tensor:
        """Returns the value of every action, [batch, actions]; -inf for illegal actions."""
        z = self.predict(self.q, obs, *noise)
        return legal(self.ensemble.actor_value(z, self.reward_weights.values), obs)

    def predict(self, critic: Critic, obs: Obs, *noise: Tensor) -> Tensor:
        """Returns the predictions of all members for every action, [members, batch, actions, ...]."""
        z = critic(obs, *noise)
        if self.ensemble.members == 1:  # a single critic has no dimension for members
            return z.unsqueeze(0)
        return z

    def noise(self, source: Stream) -> tuple[Tensor, ...]:
        """Returns the network's arguments after the observation: weight noise for a noisy network, else none."""
        if isinstance(self.q, Noisy):
            return (self.q.noise(source),)
        return ()

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        noise = [self.noise(self.update_noise) for _ in range(3)]  # one for each call of a network (sec. 3.1)
        members = self.ensemble.draw_members(self.update_noise)
        self.reward_weights.follow(batch)
        metrics, priority = self.update_q(batch, noise, members)
        count = ctx.env_steps
        if self.cfg.target_unit == "updates":
            count = ctx.updates + 1
        self.target_network.track_every(self.cfg.target_every, count)
        return metrics, priority

    @kernel
    def update_q(
        self, batch: Batch, noise: list[tuple[Tensor, ...]], members: Tensor | None = None
    ) -> tuple[Metrics, Tensor]:
        """Returns metrics and the mean absolute errors of the members, [batch], as priorities."""
        weights = batch.get("reward_weights")
        with torch.no_grad():
            next_obs = batch["next_obs"]
            next_z = self.predict(self.target_network.select(members), next_obs, *noise[0])
            selector = next_z
            if self.cfg.double:
                selector = self.predict(self.q, next_obs, *noise[1])
            next_value = legal(self.ensemble.actor_value(selector, weights), next_obs)
            next_z = gather_action(next_z, next_value.argmax(-1))
            discount = self.ensemble.discount(self.cfg.gamma, batch)  # gamma^n (1 - terminated)
            next_q = self.ensemble.target_return(next_z, weights)
            target = self.ensemble.backup(next_q, batch["reward"], discount)
        z = self.predict(self.q, batch["obs"], *noise[2])
        z = gather_action(z, batch["action"])  # [members, batch, ...]
        losses, errors = self.ensemble.losses(z, target, batch["weight"])
        loss = sum_over_members(losses, batch["weight"])
        self.optim.step(loss)
        q = self.ensemble.value(z.detach())
        metrics = {"loss/critic": loss.detach(), "loss/q": batch_mean(q)}
        return metrics, mean_absolute(errors.detach())

    def action_values(self, obs: Obs, action: Tensor) -> Tensor:
        z = self.predict(self.q, obs)  # a noisy network without noise
        return self.ensemble.value(z).mean(0)

    def report(self) -> Metrics:
        return {"epsilon": self.epsilon}
