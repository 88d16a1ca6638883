"""Temporally abstract actor-critic (TAAC; Yu et al. 2021, arXiv 2104.06521).

At every timestep a switch decides whether the current trajectory of actions goes on or a new one replaces it. The actor
proposes the new one, and the switch compares the Q-values of both. The part `algo.trajectory` defines the kind of
trajectory: a repeated action (TAAC), or actions on a line (TAAC-L) or on a parabola (TAAC-Q).

Symbols: tau is a trajectory after the decision of a timestep, tau^- the one before it; b is 1 for a new trajectory.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.agents.actor_critic.trajectories import Trajectory
from rlrun.agents.critics.ensemble import Critic
from rlrun.agents.critics.expected import Minimum
from rlrun.agents.entropy.coefficient import EntropyCoefficient, default_target, resolve_target_entropy
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.previous import remembered
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import batch_mean, weighted_mean
from rlrun.functional.priorities import of_sequences
from rlrun.functional.returns import compare_through
from rlrun.networks.heads import SquashedGaussianPolicy, Value
from rlrun.settings import (
    Around,
    Discounted,
    Part,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Range,
    Scheduled,
    Units,
    config,
    register,
    registry,
)
from rlrun.tensors import flat
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "taac")
class TAAC(Agent):
    """Soft actor-critic over trajectories of actions, with a switch that keeps or replaces the current trajectory."""

    actions = Box
    acts_with = ("actor", "critic", "switch_entropy")
    explores_with = ("entropy", "switch_entropy")
    needs_bounds = True

    @config
    class Config(Discounted):
        sequence_length: Units
        tau: PositiveFraction
        target_every: PositiveInt
        actor_learning_rate: Scheduled[PositiveFloat]
        critic_learning_rate: Scheduled[PositiveFloat]
        max_grad_norm: PositiveFloat | None
        advantage_clip: Range | None
        max_repeats: PositiveInt | None
        random_start: bool
        trajectory: Annotated[dict[str, object], Part("trajectory")]
        critic: Annotated[dict[str, object], Part("critic")]
        entropy: Annotated[dict[str, object], Part("entropy")]
        switch_entropy: Annotated[dict[str, object], Part("entropy")]

    cfg: Config

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        if around.executed_action is not None:
            why = "which learns from trajectories that begin with the action of the agent"
            yield f"env.executed_action={around.executed_action}: is not supported by algo={around.algo}, {why}"

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.sequence_length = cfg.sequence_length
        self.trajectory = parts.part("trajectory", cfg.trajectory, Trajectory)
        self.ensemble = parts.part("critic", cfg.critic, Minimum)
        self.dims = spec.action.shape[0]
        space = Box(-1.0, 1.0, (self.trajectory.size * self.dims,), np.float32)
        # the trajectory before and after the decision of a timestep, and whether it was replaced
        self.stores = {"trajectory": space, "carry.trajectory": space, "switch": Box(0.0, 1.0, (), np.float32)}
        self.actor = SquashedGaussianPolicy(parts.torso("actor", inputs=("obs", space)), self.dims)
        members = self.ensemble.members
        self.critic = Value(parts.torso("critic", inputs=("obs", space), members=members), members)
        self.target_critic = Target(self.critic, cfg.tau)
        entropy = resolve_target_entropy(cfg.entropy, spec.action)
        self.entropy = parts.part("entropy", entropy, EntropyCoefficient, default_target(spec.action))
        switch_entropy = resolve_target_entropy(cfg.switch_entropy, Discrete(2), "algo.switch_entropy")
        self.switch_entropy: EntropyCoefficient = registry.build(
            "entropy", switch_entropy, default_target(Discrete(2)), path="algo.switch_entropy"
        )
        max_grad_norm = cfg.max_grad_norm
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate, max_grad_norm=max_grad_norm)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate, max_grad_norm=max_grad_norm)
        self.advantage_range = cfg.advantage_clip or (-float("inf"), float("inf"))
        self.max_repeats = cfg.max_repeats or float("inf")
        self.act_noise = parts.stream("act")
        self.update_noise = parts.stream("update")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        previous = self.previous(carry, explore)
        dist = self.actor(obs, previous)
        if explore:
            output, _ = dist.sample(dist.noise(self.act_noise))
            threshold: Any = self.act_noise.uniform(len(previous))
        else:
            output = dist.mode()
            threshold = 0.5
        taus = self.candidates(previous, output)
        q = self.values(obs, taus)
        switch = self.switch_logit(q).sigmoid() > threshold
        return self.follow(carry, previous, taus, switch)

    def previous(self, carry: Batch, explore: bool) -> Tensor:
        """Returns tau^- [num_envs, ...]: 0, or random if configured, at the first timestep of an episode."""
        first = carry["first"]
        initial = first.new_zeros(first.shape[0], self.trajectory.size * self.dims).float()
        if self.cfg.random_start and explore:
            initial = 2 * self.act_noise.uniform(*initial.shape) - 1
        return remembered(carry, "trajectory", initial)

    def candidates(self, previous: Tensor, output: Tensor) -> Tensor:
        """Returns the two trajectories between which the switch decides, [2, batch, ...]: tau^- kept, and a new one.

        output [batch, dims]: the output of the actor, which defines the new one.
        """
        kept = self.trajectory.go_on(previous)
        new = self.trajectory.start(output, previous)
        return torch.stack([kept, new])

    def values(self, obs: Obs, taus: Tensor) -> Tensor:
        """Returns the Q-values of both trajectories, [2, batch], by which the actor and the switch decide."""
        values = []
        for tau in taus:
            z = self.critic(obs, tau)
            values.append(self.ensemble.actor_value(z))
        return torch.stack(values)

    def switch_logit(self, q: Tensor) -> Tensor:
        """Returns log P(b=1) / P(b=0) for the Q-values of both trajectories [2, batch]: the policy of the switch is
        softmax(Q / alpha_b)."""
        advantage = (q[1] - q[0]).clamp(*self.advantage_range)
        return advantage / self.switch_entropy.temperature

    def follow(self, carry: Batch, previous: Tensor, taus: Tensor, switch: Tensor) -> tuple[Tensor, Batch]:
        """Returns the actions [num_envs, dims] and the extras. A trajectory that has gone on `max_repeats` times is
        replaced."""
        zeros = torch.zeros_like(previous[:, 0])
        repeats = remembered(carry, "repeats", zeros)
        switch = switch | (repeats >= self.max_repeats)
        repeats = torch.where(switch, zeros, repeats + 1)
        tau = torch.where(switch.unsqueeze(-1), taus[1], taus[0])
        begins = switch | carry["first"]
        held = carry.get("carry.held", zeros)  # timesteps for which the previous trajectory was followed
        ended = torch.where(begins & (held > 0), held, float("nan"))
        extras = {
            "trajectory": previous,
            "carry.trajectory": tau,
            "switch": switch.float(),
            "carry.repeats": repeats,
            "carry.held": torch.where(begins, 1.0, held + 1),
            "measure.repeats": repeats,
            "measure.hold_length": ended,
        }
        return tau[:, : self.dims], extras

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        next_noise, noise = self.update_noise.normal(2, batch["mask"].numel(), self.dims)
        switch_noise = self.update_noise.uniform(*batch["mask"].shape)
        batch = batch | {"weight": batch["mask"] * batch["weight"]}
        members = self.ensemble.draw_members(self.update_noise)
        metrics, priority = self.update_critic(batch, next_noise, switch_noise, members)
        metrics |= self.update_actor(batch, noise)
        self.target_critic.track_every(self.cfg.target_every, ctx.updates + 1)
        return metrics, priority

    @kernel
    def update_critic(
        self, batch: Batch, noise: Tensor, switch_noise: Tensor, members: Tensor | None = None
    ) -> tuple[Metrics, Tensor]:
        """Returns metrics and the priorities of the sequences, [batch]."""
        with torch.no_grad():
            target_q = self.target_q(batch, noise, switch_noise, self.target_critic.select(members))
        q = self.critic(flat(batch["obs"]), flat(batch["carry.trajectory"]))  # [members, time * batch]
        critic_loss, metrics, error = self.ensemble.regress(q, target_q.flatten(), batch["weight"].flatten())
        self.critic_optim.step(critic_loss)
        return metrics, of_sequences(error.view_as(target_q), batch["weight"])

    def target_q(self, batch: Batch, noise: Tensor, switch_noise: Tensor, target_critic: Critic) -> Tensor:
        """Returns compare-through targets [time, batch] for Q(s, tau), with V(s) = sum_b P(b) min_i Q_i(s, tau_b)."""
        next_obs = flat(batch["next_obs"])
        previous = flat(batch["carry.trajectory"])
        output, _ = self.actor(next_obs, previous).sample(noise)
        taus = self.candidates(previous, output)
        p = self.switch_logit(self.values(next_obs, taus)).sigmoid()
        q = [self.ensemble.target_return(target_critic(next_obs, tau)) for tau in taus]
        next_value = (1 - p) * q[0] + p * q[1]
        next_switch = switch_noise < p.view_as(switch_noise)
        return self.targets(batch, next_value.view_as(switch_noise), next_switch)

    def targets(self, batch: Batch, next_value: Tensor, next_switch: Tensor) -> Tensor:
        """Returns compare-through targets [time, batch] for sequences from replay.

        next_value and next_switch [time, batch]: value of the successor, and a switch sampled there now.
        """
        has_next = torch.zeros_like(next_switch)  # whether the next row is the next timestep of the episode
        has_next[:-1] = batch["mask"][1:] > 0
        return compare_through(
            batch["reward"],
            next_value,
            switch_tm1=batch["switch"] > 0,
            switch_t=next_switch,
            terminated=batch["terminated"] > 0,
            done=~has_next,
            gamma=self.cfg.gamma,
        )

    @kernel
    def update_actor(self, batch: Batch, noise: Tensor) -> Metrics:
        obs = flat(batch["obs"])
        previous = flat(batch["trajectory"])
        weight = batch["weight"].flatten()
        output, log_prob = self.actor(obs, previous).sample(noise)
        taus = self.candidates(previous, output)
        q = self.values(obs, taus)
        logit = self.switch_logit(q.detach())
        p = logit.sigmoid()
        actor_loss = weighted_mean(self.entropy.alpha * log_prob - p * q[1], weight)
        self.actor_optim.step(actor_loss)
        entropy = -log_prob.detach()
        switch_entropy = binary_entropy(logit)
        metrics = {
            "loss/actor": actor_loss.detach(),
            "loss/entropy": batch_mean(entropy),
            "loss/switch_entropy": batch_mean(switch_entropy),
        }
        metrics |= self.entropy.adjust(entropy, weight)
        adjusted = self.switch_entropy.adjust(switch_entropy, weight)
        return metrics | {name.replace("/", "/switch_"): value for name, value in adjusted.items()}

    @torch.no_grad()
    def warm_up(self, action: Tensor, carry: Batch) -> tuple[Tensor, Batch]:
        previous = self.previous(carry, explore=True)
        switch = self.act_noise.uniform(len(action)) < 0.5
        return self.follow(carry, previous, self.candidates(previous, action), switch)


def binary_entropy(logit: Tensor) -> Tensor:
    """Returns the entropy in nats of a decision between two options, one of which has log odds `logit`."""
    return torch.nn.functional.softplus(logit) - logit.sigmoid() * logit
