"""Q-learning (Watkins 1989), and optionally double Q-learning (van Hasselt 2010, NeurIPS 23).

All environments share one table, or two for double Q-learning. If several environments visit the same state and action
in one step, the result is the mean over all orders of sequential updates.
"""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.functional.losses import batch_mean
from rlrun.functional.returns import td_target
from rlrun.functional.tabular import move, random_argmax
from rlrun.nested import index
from rlrun.settings import Discounted, Fraction, PositiveFraction, Scheduled, config, register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "q_learning")
class QLearning(Agent):
    """Tabular Q-learning with an epsilon-greedy policy; base class of the other tabular agents."""

    actions = Discrete
    observations = Discrete

    @config
    class Config(Discounted):
        learning_rate: Scheduled[PositiveFraction]
        double: bool
        initial_value: float
        epsilon: Scheduled[Fraction]

    cfg: Config

    q: Tensor
    epsilon: Tensor
    rate: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.num_actions = int(spec.action.n)
        tables = 1
        if cfg.double:
            tables = 2
        shape = (tables, int(spec.obs.n), self.num_actions)
        self.register_buffer("q", torch.full(shape, cfg.initial_value))
        self.register_buffer("epsilon", torch.as_tensor(cfg.epsilon), persistent=False)
        self.register_buffer("rate", torch.as_tensor(cfg.learning_rate))  # the schedule's own tensor, if there is one
        self.act_noise = parts.stream("act")
        self.coins = parts.stream("tables")

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        state = self.state(obs)
        if explore:
            return self.explore(state), {}
        values = self.q.mean(0)[state]
        return values.argmax(-1), {}

    def explore(self, state: Tensor) -> Tensor:
        """Returns actions of the epsilon-greedy policy, [env]; ties are broken at random."""
        values = self.q.mean(0)[state]
        greedy = random_argmax(values, self.act_noise.uniform(*values.shape))
        random = self.act_noise.integers(self.num_actions, len(greedy))
        is_random = self.act_noise.uniform(len(greedy)) < self.epsilon
        return torch.where(is_random, random, greedy)

    def state(self, obs: Tensor) -> Tensor:
        """Returns the index of the state in the tables, counted from 0."""
        return obs - int(self.spec.obs.start)

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        for t in range(len(rollout["reward"])):
            metrics = self.learn(index(rollout, t))
        return metrics

    def learn(self, step: Batch) -> Metrics:
        """Updates the tables with one vector step, [env, ...]; each environment updates a randomly chosen table."""
        coin = self.coins.integers(len(self.q), len(step["reward"]))
        return self.update_q(self.transition(step), coin)

    def transition(self, step: Batch) -> Batch:
        """Returns the step with table indices: `next_state`, and `pair` = state * num_actions + action."""
        pair = self.state(step["obs"]) * self.num_actions + step["action"]
        return {
            "reward": step["reward"],
            "terminated": step["terminated"],
            "weight": step["weight"],
            "pair": pair,
            "next_state": self.state(step["next_obs"]),
        }

    @kernel
    def update_q(self, step: Batch, table: Tensor) -> Metrics:
        """Updates the pair of each environment in one of the tables; table [env] is the index of the table."""
        next_value = self.next_value(table, step["next_state"])
        discount = self.cfg.gamma * ~step["terminated"]
        target = td_target(step["reward"], discount, next_value)
        cell = table * self.q[0].numel() + step["pair"]
        error = move(self.q.view(-1), cell, target, self.rate, step["weight"])
        return {"loss/td_error": batch_mean(error.abs()), "loss/q": self.q.mean()}

    def next_value(self, table: Tensor, state: Tensor) -> Tensor:
        """Returns the value of the greedy action in the next state, [env].

        table [env]: the index of the table to update. With two tables, this one determines the greedy action, and the
        other one its value.
        """
        best = self.q[table, state].argmax(-1)
        return self.q[self.other(table), state, best]

    def other(self, table: Tensor) -> Tensor:
        """Returns the index of the other table, or of the only table without double Q-learning."""
        return len(self.q) - 1 - table

    def action_values(self, obs: Tensor, action: Tensor) -> Tensor:  # type: ignore[override]
        """Returns Q(s, a) of all actions: the mean of the tables, by which `act` chooses."""
        return self.q.mean(0)[self.state(obs)]

    def report(self) -> Metrics:
        return {"epsilon": self.epsilon}
