"""Learning to learn: in a new task an agent explores for a few episodes, adapts, and acts with what it has become."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from rlrun.buffers.rollout import Rollout
from rlrun.core.addon import Addons
from rlrun.core.random import aside
from rlrun.types import Batch, Step, carried


class Policy(Protocol):
    """Acts in one task for each environment."""

    def act(self, obs: Any, carry: Batch, explore: bool) -> tuple[Tensor, Batch]: ...


@runtime_checkable
class MetaAgent(Protocol):
    """What an agent provides beside acting and updating. Every environment is a task of its own."""

    exploration_episodes: int  # in each task before it adapts

    def get_exploration_policy(self) -> Policy:
        """A fresh one, for one task in each environment."""

    def adapt_policy(self, policy: Policy, rollout: Batch) -> Policy:
        """Adapted to what `policy` has seen, [time, env, ...]. What was learned before stays; `policy` is spent."""


def episodes(
    policy: Policy, addons: Addons, obs: Any, first: Tensor, step: Callable[[Tensor], Step], count: int
) -> Batch:
    """So many whole episodes of every environment, as an agent learns from them: [time, env, ...].

    They begin with obs; first is all true, [num_envs]. An environment that is done goes on, with rows of weight 0.
    """
    rollout, carry, owed = Rollout(), {"first": first}, count * first.long()
    while owed.any():
        action, extras = addons.act(policy, obs, carry, True)
        result = step(action)
        row = result._replace(weight=result.weight * (owed > 0))
        rollout.add(obs, action, row, extras, carry["first"])
        ended = result.terminated | result.truncated
        owed = owed - (ended & (row.weight > 0)).long()
        obs, carry = result.obs, carried(extras, ended)
    return addons.relabel(rollout.batch())


def adapted(agent: MetaAgent, addons: Addons, env: Any) -> Policy:
    """The agent adapted to the tasks of these environments, for evaluation: its own streams and weights stay."""
    with aside(agent, "exploration"):  # type: ignore[arg-type]
        policy = agent.get_exploration_policy()
        first = torch.ones(env.spec.num_envs, dtype=torch.bool, device=env.device)
        rollout = episodes(policy, addons, env.reset(), first, env.step, agent.exploration_episodes)
    return agent.adapt_policy(policy, rollout)
