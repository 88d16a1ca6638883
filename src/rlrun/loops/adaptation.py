"""Meta-RL: in a new task, an agent explores for a few episodes, adapts its policy to them, and acts with the result."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from rlrun.buffers.rollout import Rollout
from rlrun.core.addon import Addons
from rlrun.core.collector import check_ends
from rlrun.core.random import reseeded
from rlrun.types import Batch, Spec, Step, carried


class MetaPolicy(Protocol):
    """Acts in several environments, each with its own task."""

    def act(self, obs: Any, carry: Batch, explore: bool) -> tuple[Tensor, Batch]: ...


@runtime_checkable
class MetaAgent(Protocol):
    """The methods that a meta-RL agent adds to those of `Agent`. Each environment has its own task."""

    exploration_episodes: int  # episodes in each task before adaptation

    def get_exploration_policy(self) -> MetaPolicy:
        """Returns a new exploration policy, for one task per environment."""

    def adapt_policy(self, policy: MetaPolicy, rollout: Batch) -> MetaPolicy:
        """Returns `policy` adapted to its rollout [time, env, ...].

        The agent's own parameters do not change. `policy` must not be used afterwards.
        """


def collect_episodes(
    policy: MetaPolicy, addons: Addons, spec: Spec, obs: Any, first: Tensor, step: Callable[[Tensor], Step], count: int
) -> Batch:
    """Collects `count` whole episodes of every environment, [time, env, ...], relabelled by the add-ons.

    `spec` describes the environments. `obs` are the first observations of the episodes; `first` [num_envs] is all
    true. An environment that has finished its episodes keeps stepping, with weight 0, until all have finished.
    """
    rollout = Rollout(spec)
    carry = {"first": first}
    remaining = count * first.long()  # [num_envs], episodes that have not ended
    num_remaining = int(remaining.sum())
    waited = 0  # timesteps since one of these episodes has ended
    while num_remaining:
        waited += 1
        check_ends(waited, spec)
        action, extras = addons.act(policy, obs, carry, True)
        result = step(action)
        row = result._replace(weight=result.weight * (remaining > 0))
        rollout.add(obs, action, row, extras, carry["first"])
        ended = result.terminated | result.truncated
        remaining = remaining - (ended & (row.weight > 0)).long()
        if int(remaining.sum()) < num_remaining:
            num_remaining = int(remaining.sum())
            waited = 0
        obs, carry = result.obs, carried(extras, ended)
    return addons.relabel(rollout.batch())


def adapted_policy(agent: MetaAgent, addons: Addons, env: Any) -> MetaPolicy:
    """Returns a policy adapted to the tasks of `env`, for evaluation. The agent's streams and weights do not change."""
    with reseeded(agent, "exploration"):  # type: ignore[arg-type]
        policy = agent.get_exploration_policy()
        first = torch.ones(env.spec.num_envs, dtype=torch.bool, device=env.device)
        rollout = collect_episodes(policy, addons, env.spec, env.reset(), first, env.step, agent.exploration_episodes)
    return agent.adapt_policy(policy, rollout)
