"""Model-agnostic meta-learning for policies (Finn et al. 2017, arXiv 1703.03400, algorithm 3).

Learns initial weights from which one policy gradient step per task (the inner step) leads to a good policy for the
task. The gradient of the outer step is taken through the inner step. As in the paper, every task has a baseline that is
linear in features of the observation and the time, fitted to the returns of its own episodes.

The standard deviation of Gaussian policies is learned in the outer step, but not adapted in the inner step.

Two things differ from the paper. The inner objective is the likelihood ratio times the advantage, because its second
derivative is correct, unlike that of the log-likelihood (arXiv 1810.06784). The outer step is a step of PPO instead of
TRPO.
"""

from typing import Any

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from rlrun.core.agent import Agent
from rlrun.core.collector import MemberPolicy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.baselines import linear_baseline
from rlrun.functional.distributions import Categorical, Normal
from rlrun.functional.losses import batch_mean, clipped_surrogate, standardise
from rlrun.functional.returns import gae
from rlrun.nested import mapped
from rlrun.networks.choices import legal
from rlrun.networks.heads import Head
from rlrun.networks.inputs import FlattenInputs
from rlrun.networks.stacked import Stacked
from rlrun.settings import Discounted, PositiveFloat, PositiveInt, Scheduled, Size, config, register
from rlrun.types import Batch, Context, MetaBatch, Metrics, Obs, Spec


class TaskPolicy(MemberPolicy):
    """A policy with weights [tasks, P], or [1, P] for all tasks.

    Once it has been adapted, it can neither act nor be adapted: both raise RuntimeError, because the caller should use
    the adapted policy or a new one.
    """

    agent: "MAML"

    def __init__(self, agent: "MAML", params: Tensor):
        super().__init__(agent, params)
        self.was_adapted = False

    def act(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        self._check_unadapted()
        return super().act(obs, carry, explore)

    def adapted_to(self, explored: Batch) -> "TaskPolicy":
        """Returns a policy with the weights after one inner step per task on rows with advantages."""
        self._check_unadapted()
        self.was_adapted = True
        params = self.agent.adapt(self.params.requires_grad_(), explored)
        return TaskPolicy(self.agent, params.detach())

    def _check_unadapted(self) -> None:
        if self.was_adapted:
            raise RuntimeError("this policy was adapted: call get_exploration_policy for a new one")


@register("algo", "maml")
class MAML(Agent):
    """MAML with one inner policy gradient step and an outer step of PPO."""

    actions = (Box, Discrete)
    unexportable = "it adapts to a task before it acts"

    @config
    class Config(Discounted):
        inner_learning_rate: PositiveFloat
        exploration_episodes: Size
        learning_rate: Scheduled[PositiveFloat]
        epochs: PositiveInt
        clip_range: PositiveFloat

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.exploration_episodes = cfg.exploration_episodes
        self.discrete = isinstance(spec.action, Discrete)
        if self.discrete:
            outputs = int(spec.action.n)
        else:
            outputs = spec.action.shape[0]
        template = Head(parts.torso(members=1), outputs, members=1, gain=0.01)
        self.network = Stacked(template)
        self.weights = nn.Parameter(self.network.initial())
        self.log_std = None
        if not self.discrete:
            self.log_std = nn.Parameter(self.weights.new_zeros(outputs))
        self.optim = Optim(self.parameters(), cfg.learning_rate)
        self.flatten = FlattenInputs(spec.obs)
        self.act_noise = parts.stream("act")

    def policy(self, obs: Obs, params: Tensor) -> Normal | Categorical:
        """Returns the action distribution for obs [rows, ...]; rows are split evenly over params [tasks, P]."""
        out = self.network(obs, params)
        if self.log_std is None:
            return Categorical(legal(out, obs))
        return Normal(out, self.log_std.expand_as(out))

    @torch.no_grad()
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        if params is None:
            params = self.weights[None]
        dist = self.policy(obs, params)
        if not explore:
            return dist.mode(), {}
        action = dist.sample(dist.noise(self.act_noise))
        return action, {"log_prob": dist.log_prob(action)}

    def get_exploration_policy(self) -> TaskPolicy:
        return TaskPolicy(self, self.weights.detach()[None])

    def adapt_policy(self, policy: TaskPolicy, rollout: Batch) -> TaskPolicy:
        """Returns the policy after one inner step per task on rollout [time, tasks, ...]; the agent does not change."""
        with torch.enable_grad():
            return policy.adapted_to(self.rows_with_advantages(rollout))

    def update(self, batch: MetaBatch, ctx: Context) -> Metrics:
        explored = self.rows_with_advantages(batch["explored"])
        adapted = self.rows_with_advantages(batch["adapted"])
        for _ in range(self.cfg.epochs):
            metrics = self.meta_step(explored, adapted)
        metrics["loss/return_explored"] = episode_return(batch["explored"])
        metrics["loss/return_adapted"] = episode_return(batch["adapted"])
        return metrics

    def meta_step(self, explored: Batch, adapted: Batch) -> Metrics:
        """Takes one outer step: PPO on the episodes `adapted`, differentiated through the inner step on `explored`."""
        params = self.adapt(self.weights[None], explored)
        ratio = self.ratio(params, adapted)
        surrogate = clipped_surrogate(ratio, adapted["advantage"], self.cfg.clip_range)
        loss = -batch_mean(per_task(surrogate, adapted))
        norm = self.optim.step(loss)
        mean_ratio = batch_mean(per_task(ratio.detach(), adapted))
        return {"loss/actor": loss.detach(), "loss/ratio": mean_ratio, "loss/grad_norm": norm}

    def adapt(self, params: Tensor, explored: Batch) -> Tensor:
        """Returns the weights of every task after the inner step, [tasks, P].

        The result is differentiable with respect to params [1, P] or [tasks, P].
        """
        params = params.expand(int(explored["tasks"]), -1)
        ratio = self.ratio(params, explored)
        objective = per_task(ratio * explored["advantage"], explored)
        # every task has its own row of params, so the gradient of the sum holds the gradient of each task in its row
        (grads,) = torch.autograd.grad(objective.sum(), params, create_graph=True)
        return params + self.cfg.inner_learning_rate * grads

    def ratio(self, params: Tensor, rows: Batch) -> Tensor:
        """Returns the probability ratio of the actions, current policy over collecting policy; [rows]."""
        log_prob = self.policy(rows["obs"], params).log_prob(rows["action"])
        return (log_prob - rows["log_prob"]).exp()

    @torch.no_grad()
    def rows_with_advantages(self, rollout: Batch) -> Batch:
        """Returns as rows what the losses read: entries of a rollout [time, tasks, ...], and the advantages.

        The entry `tasks` is the number of tasks.
        """
        weight = rollout["weight"]
        terminated = rollout["terminated"]
        done = terminated | rollout["truncated"]
        zeros = torch.zeros_like(weight)
        returns = gae(rollout["reward"], zeros, zeros, terminated, done, self.cfg.gamma, 1.0)
        features = self.flatten(rollout["obs"])
        baseline = linear_baseline(features, rollout["first"], returns, weight)
        advantages = []
        residuals = (returns - baseline).unbind(1)
        for residual, task_weight in zip(residuals, weight.unbind(1), strict=True):
            advantages.append(standardise(residual, task_weight))
        kept = {key: rollout[key] for key in ("obs", "action", "log_prob", "weight")}
        kept["advantage"] = torch.stack(advantages, 1)
        return in_rows(kept) | {"tasks": weight.shape[1]}


def in_rows(rollout: Batch) -> Any:
    """Returns a batch [time, tasks, ...] as rows [tasks * time, ...], one task after the other."""
    return mapped(lambda x: x.transpose(0, 1).flatten(0, 1), rollout)


def per_task(x: Tensor, rows: Batch) -> Tensor:
    """Returns the weighted mean over the rows of each task, [tasks]."""
    weight = rows["weight"].view(int(rows["tasks"]), -1)
    total = (x.view_as(weight) * weight).sum(1)
    return total / weight.sum(1)


def episode_return(rollout: Batch) -> Tensor:
    """Returns the mean return of the complete episodes in a rollout [time, tasks, ...], 0-d."""
    done = rollout["terminated"] | rollout["truncated"]
    weight = rollout["weight"]
    episodes = (done * weight).sum()
    return (rollout["reward"] * weight).sum() / episodes
