"""Model-agnostic meta-learning for policies (Finn et al. 2017, arXiv 1703.03400, algorithm 3).

The weights are learned from which one policy gradient step per task leads to good policies; the gradient goes through
that step. As in the paper every task has a baseline that is linear in features of the observation and the time,
fitted to the returns of its own episodes. Beyond it: the step's objective is the likelihood ratio, whose second
derivative is right where that of the log-likelihood is not (arXiv 1810.06784), and the outer step is PPO's instead of
TRPO's. The deviation of Gaussian policies is learned, but not adapted.
"""

from typing import Any

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from rlrun.config.schema import Discounted, PositiveFloat, PositiveInt, Size, config
from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.baselines import linear_baseline
from rlrun.functional.distributions import Categorical, Normal
from rlrun.functional.losses import clipped_surrogate, standardise
from rlrun.functional.returns import gae
from rlrun.nested import mapped
from rlrun.networks.choices import legal
from rlrun.networks.heads import Head
from rlrun.networks.inputs import Flatten
from rlrun.networks.stacked import Stacked
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Spec


class TaskPolicy:
    """How the agent acts in the tasks of its environments, with weights [tasks, P]. It can be adapted once."""

    def __init__(self, agent: "MAML", params: Tensor):
        self.agent, self.params, self.spent = agent, params, False

    def act(self, obs: Any, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        if self.spent:
            raise RuntimeError("this policy was adapted: ask for a fresh one")
        return self.agent.act(obs, carry, explore, self.params)

    def spend(self) -> Tensor:
        if self.spent:
            raise RuntimeError("this policy was adapted before: ask for a fresh one")
        self.spent = True
        return self.params


@register("algo", "maml")
class MAML(Agent):
    actions = (Box, Discrete)

    @config
    class Config(Discounted):
        inner_learning_rate: PositiveFloat
        exploration_episodes: Size
        learning_rate: PositiveFloat
        epochs: PositiveInt
        clip_range: PositiveFloat

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.exploration_episodes = cfg.exploration_episodes
        self.discrete = isinstance(spec.action, Discrete)
        outputs = int(spec.action.n) if self.discrete else spec.action.shape[0]
        self.network = Stacked(Head(parts.torso(members=1), outputs, members=1, gain=0.01))
        self.weights = nn.Parameter(self.network.initial())
        self.log_std = None if self.discrete else nn.Parameter(self.weights.new_zeros(outputs))
        self.optim = Optim(self.parameters(), cfg.learning_rate)
        self.flatten = Flatten(spec.obs)
        self.act_noise = parts.stream("act")

    def policy(self, obs: Any, params: Tensor) -> Normal | Categorical:
        """obs [rows, ...], split evenly over params [tasks, P]."""
        out = self.network(obs, params)
        return Categorical(legal(out, obs)) if self.log_std is None else Normal(out, self.log_std.expand_as(out))

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.policy(obs, self.weights[None] if params is None else params)
        if not explore:
            return dist.mode(), {}
        action = dist.sample(dist.noise(self.act_noise))
        return action, {"log_prob": dist.log_prob(action)}

    def get_exploration_policy(self) -> TaskPolicy:
        return TaskPolicy(self, self.weights.detach()[None])

    def adapt_policy(self, policy: TaskPolicy, rollout: Batch) -> TaskPolicy:
        """One step in every task, on its episodes [time, tasks, ...]. The agent stays as it is."""
        with torch.enable_grad():
            params = policy.spend().requires_grad_()
            return TaskPolicy(self, self.adapt(params, self.advantages(rollout)).detach())

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        explored, adapted = (self.advantages(batch[key]) for key in ("explored", "adapted"))
        for _ in range(self.cfg.epochs):
            metrics = self.meta_step(explored, adapted)
        returns = {f"return_{key}": episode_return(batch[key]) for key in ("explored", "adapted")}
        return metrics | returns

    def meta_step(self, explored: Batch, adapted: Batch) -> Metrics:
        params = self.adapt(self.weights[None], explored)
        ratio = self.ratio(params, adapted)
        surrogate = clipped_surrogate(ratio, adapted["advantage"], self.cfg.clip_range)
        loss = -per_task(surrogate, adapted).mean()
        norm = self.optim.step(loss)
        return {"actor": loss.detach(), "ratio": ratio.detach().mean(), "grad_norm": norm}

    def adapt(self, params: Tensor, explored: Batch) -> Tensor:
        """Weights of every task [tasks, P] after the inner step, differentiable in params [1, P] or [tasks, P]."""
        params = params.expand(explored["tasks"], -1)
        gain = per_task(self.ratio(params, explored) * explored["advantage"], explored)
        # tasks share no weights, so the gradient of the sum holds each task's own
        (grads,) = torch.autograd.grad(gain.sum(), params, create_graph=True)
        return params + self.cfg.inner_learning_rate * grads

    def ratio(self, params: Tensor, rows: Batch) -> Tensor:
        """How much likelier actions are than when they were taken, [rows]."""
        return (self.policy(rows["obs"], params).log_prob(rows["action"]) - rows["log_prob"]).exp()

    @torch.no_grad()
    def advantages(self, rollout: Batch) -> Batch:
        """What the losses need of [time, tasks, ...], as rows [tasks * time, ...]: one task after the other."""
        weight, done = rollout["weight"], rollout["terminated"] | rollout["truncated"]
        zeros = torch.zeros_like(weight)
        returns = gae(rollout["reward"], zeros, zeros, rollout["terminated"], done, self.cfg.gamma, 1.0)
        gain = returns - linear_baseline(self.flatten(rollout["obs"]), rollout["first"], returns, weight)
        gain = torch.stack([standardise(x, w) for x, w in zip(gain.unbind(1), weight.unbind(1), strict=True)], 1)
        kept = {key: rollout[key] for key in ("obs", "action", "log_prob", "weight")} | {"advantage": gain}
        return in_rows(kept) | {"tasks": weight.shape[1]}


def in_rows(rollout: Any) -> Any:
    """[time, tasks, ...] to [tasks * time, ...]."""
    return mapped(lambda x: x.transpose(0, 1).flatten(0, 1), rollout)


def per_task(x: Tensor, rows: Batch) -> Tensor:
    """Mean over the rows of each task that count, [tasks]."""
    weight = rows["weight"].view(rows["tasks"], -1)
    return (x.view_as(weight) * weight).sum(1) / weight.sum(1)


def episode_return(rollout: Batch) -> Tensor:
    """Mean over the whole episodes of [time, tasks, ...]."""
    done = rollout["terminated"] | rollout["truncated"]
    return (rollout["reward"] * rollout["weight"]).sum() / (done * rollout["weight"]).sum()
