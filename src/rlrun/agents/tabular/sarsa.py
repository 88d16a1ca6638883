"""SARSA(lambda) (Rummery and Niranjan 1994) with accumulating traces; lambda = 0 is one-step SARSA.

The target needs the next action, so the agent learns from each step only when the next step has arrived. A truncated
episode has no next action; one is sampled from the policy.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rlrun.agents.tabular.q_learning import QLearning
from rlrun.core.agent import kernel
from rlrun.core.parts import Parts
from rlrun.functional.losses import batch_mean
from rlrun.functional.returns import td_target
from rlrun.functional.tabular import move_along
from rlrun.settings import Around, Fraction, config, register
from rlrun.tensors import on
from rlrun.types import Batch, Metrics, Spec


@register("algo", "sarsa")
class SARSA(QLearning):
    """Tabular SARSA(lambda) with an epsilon-greedy policy."""

    @config
    class Config(QLearning.Config):
        trace_lambda: Fraction

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.last: Batch | None = None  # the last transition, whose next action is not known yet
        self.traces = self.q.new_zeros(spec.num_envs, self.q.numel())

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        yield from super().requires(own, around)
        if around.loop == "episodes":
            yield (
                f"algo.loop=episodes is not supported by algo={around.algo}, which keeps a trace for each environment, "
                "not for each episode; choose algo.loop=onpolicy"
            )

    def learn(self, step: Batch) -> Metrics:
        previous = self.last
        self.last = self.transition(step) | {"truncated": step["truncated"]}
        if previous is None:
            return {}
        sampled = self.explore(previous["next_state"])
        previous["next_action"] = torch.where(previous["truncated"], sampled, step["action"])
        coin = self.coins.integers(len(self.q), len(sampled))
        return self.update_q(previous, coin)

    @kernel
    def update_q(self, step: Batch, table: Tensor) -> Metrics:
        """Adds rate * TD error * eligibility trace to every cell of the tables.

        table [env]: index of the table that each environment updates. The traces are [env, cells].
        """
        next_value = self.q[self.other(table), step["next_state"], step["next_action"]]
        discount = self.cfg.gamma * ~step["terminated"]
        target = td_target(step["reward"], discount, next_value)
        cell = table * self.q[0].numel() + step["pair"]
        error = (target - self.q.view(-1)[cell]) * step["weight"]
        self.traces.mul_(self.cfg.gamma * self.cfg.trace_lambda)
        self.traces.scatter_add_(1, cell.unsqueeze(-1), step["weight"].unsqueeze(-1))
        move_along(self.q.view(-1), self.traces, error, self.rate)
        done = step["terminated"] | step["truncated"]
        self.traces.mul_(~done.unsqueeze(-1))
        return {"loss/td_error": batch_mean(error.abs()), "loss/q": self.q.mean()}

    def get_extra_state(self) -> dict[str, object]:
        return {"last": self.last, "traces": self.traces}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.last = on(self.q, state["last"])
        self.traces = state["traces"].to(self.q, copy=True)
