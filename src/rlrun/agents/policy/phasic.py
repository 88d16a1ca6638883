"""Phasic policy gradient (PPG; Cobbe et al. 2021, arXiv 2009.04416), as a critic update of PPO.

The critic has a network of its own, so that learning values does not disturb the policy. What it learns reaches the
policy's torso in auxiliary phases: there a second value head on this torso learns the same targets, while the policy
is kept near the one at the start of the phase.
"""

from typing import Any

import torch
from torch import Tensor, nn

from rlrun.agents.policy.comparable import check_comparable
from rlrun.agents.policy.critic_updates import JointUpdate, LossSettings
from rlrun.buffers.minibatches import minibatches, per_step
from rlrun.core.accumulator import at, mean_metrics
from rlrun.core.agent import kernel
from rlrun.core.parts import Parts
from rlrun.core.state import OPTIMIZERS, Optim
from rlrun.functional.distributions import from_tensors, to_tensors
from rlrun.functional.divergences import kl
from rlrun.functional.losses import huber, masked_mean
from rlrun.indexed import closed, opened
from rlrun.networks.heads import PolicyHead, Value
from rlrun.settings import NonNegativeFloat, PositiveFloat, PositiveInt, Scheduled, config, register
from rlrun.tensors import on
from rlrun.types import Batch, Metrics


@register("critic_update", "phasic")
class PhasicUpdate(JointUpdate):
    """A separate critic network, trained as that of `joint`, and auxiliary phases that train the policy's torso.

    A phase follows every `interval` updates and learns from their rollouts, with an optimiser of its own. Observations
    are those that the policy saw, normalised by the statistics of their time.
    """

    @config
    class Config(LossSettings):
        interval: PositiveInt
        epochs: PositiveInt
        minibatch_size: PositiveInt
        clone_coef: NonNegativeFloat
        learning_rate: Scheduled[PositiveFloat] | None

    def __init__(self, cfg: Config, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent, parts, policy_torso, columns)
        self.auxiliary = Value(policy_torso, gain=1.0, columns=columns)
        self.order = parts.stream("phase")
        self.length = parts.memory.sequence_length
        self.num_kept = cfg.interval
        self.rollouts: list[Batch] = []  # since the last phase, oldest first

    def check_policy(self, policy: PolicyHead, parts: Parts) -> None:
        check_comparable(policy, parts, kl, "algo.critic_update=phasic", "algo.critic_update=joint")

    def around(self, policy: PolicyHead) -> Optim:
        self.policy = (policy,)  # in a tuple, so that it is no submodule
        modules = (policy, self.network, self.auxiliary.output)
        rate = self.agent.learning_rate if self.cfg.learning_rate is None else self.cfg.learning_rate
        self.optim = OPTIMIZERS[self.agent.optimizer](
            nn.ModuleList(modules).parameters(),
            rate,
            eps=self.agent.optimizer_eps,
            max_grad_norm=self.agent.max_grad_norm,
        )
        return self.optim

    def finish(self, rollout: Batch, targets: Tensor) -> Metrics:
        self.rollouts.append({"obs": rollout["obs"], "weight": rollout["weight"], "return": targets})
        if len(self.rollouts) < self.cfg.interval:
            return {}
        rollouts = [rollout | self.distribution(rollout) for rollout in self.rollouts]
        self.rollouts = []
        before = self.evaluated(rollouts)
        for _ in range(self.cfg.epochs):
            for index in self.order.permutation(len(rollouts)).tolist():
                (epoch,) = minibatches(rollouts[index], 1, self.cfg.minibatch_size, self.order, self.length)
                for batch in epoch:
                    self.learn(batch)
        return at("before", before) | at("after", self.evaluated(rollouts))

    @torch.no_grad()
    def distribution(self, rollout: Batch) -> Batch:
        """Returns the policy's distribution in every step of a rollout, as tensors [time, env, ...]."""
        [policy] = self.policy
        return per_step(lambda steps: to_tensors(policy(steps["obs"])), rollout, ("obs",), self.length)

    @torch.no_grad()
    def evaluated(self, rollouts: list[Batch]) -> Metrics:
        """Returns the metrics of a phase for all its data, without a gradient step."""
        epochs = (minibatches(rollout, 1, self.cfg.minibatch_size, None, self.length) for rollout in rollouts)
        return mean_metrics(self.phase_loss(batch)[1] for (epoch,) in epochs for batch in epoch)

    @kernel
    def learn(self, batch: Batch) -> Metrics:
        """Takes one gradient step of a phase."""
        loss, metrics = self.phase_loss(batch)
        self.optim.step(loss)
        return metrics

    def phase_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Returns the loss of a minibatch of a phase, 0-d, and its metrics."""
        [policy] = self.policy
        dist = policy(batch["obs"])
        divergence = masked_mean(kl(from_tensors(dist, batch), dist), batch["weight"])
        networks = (self.network, self.auxiliary)
        errors = (huber(self.in_units(network(batch["obs"]) - batch["return"]), self.delta) for network in networks)
        critic, auxiliary = (self.mean_error(error, batch) for error in errors)
        loss = critic + auxiliary + self.cfg.clone_coef * divergence
        metrics = {
            "loss/phase_critic": critic.detach(),
            "loss/phase_auxiliary": auxiliary.detach(),
            "loss/phase_kl": divergence.detach(),
        }
        return loss, metrics

    def get_extra_state(self) -> list[Batch]:
        return [closed(rollout) for rollout in self.rollouts]

    def set_extra_state(self, state: list[Batch]) -> None:
        """Restores the state. Raises ValueError if it holds no rollouts, because snapshots may be untrusted."""
        if not all(isinstance(rollout, dict) and rollout.keys() == {"obs", "weight", "return"} for rollout in state):
            raise ValueError("the rollouts of a phase have other entries")
        self.rollouts = [opened(on(self.network.output.weight, rollout)) for rollout in state]
