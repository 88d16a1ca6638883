"""Meta-RL: in a new task, an agent explores for a few episodes, adapts its policy to them, and acts with the result."""

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import torch

from rlrun.buffers.rollout import Rollout
from rlrun.core.addon import Addons
from rlrun.core.clock import Clock
from rlrun.core.collector import Acts, Collector
from rlrun.core.random import reseeded
from rlrun.types import Batch, Spec, Step


@runtime_checkable
class MetaAgent(Protocol):
    """The methods that a meta-RL agent adds to those of `Agent`. Each environment has its own task."""

    exploration_episodes: int  # episodes in each task before adaptation

    def get_exploration_policy(self) -> Acts:
        """Returns a new exploration policy, for one task per environment."""

    def adapt_policy(self, policy: Acts, rollout: Batch) -> Acts:
        """Returns `policy` adapted to its rollout [time, env, ...].

        The agent's own parameters do not change. `policy` must not be used afterwards.
        """


def collect_episodes(steps: Iterable[Step], spec: Spec, count: int) -> Batch:
    """Returns a rollout of `count` whole episodes of every environment, [time, env, ...].

    steps: of new episodes in every environment. One that has finished its episodes keeps stepping, with weight 0, until
    all have finished.
    """
    rollout = Rollout(spec)
    remaining = torch.full((spec.num_envs,), count)  # episodes that have not ended, on the host
    for step in steps:
        weight = step["weight"] * (remaining > 0).to(step["weight"])
        rollout.add(step | {"weight": weight})
        ended = ((step["terminated"] | step["truncated"]) & (weight > 0)).cpu()
        remaining -= ended.long()
    return rollout.batch()


def adapted_policy(agent: MetaAgent, addons: Addons, env: Any) -> Acts:
    """Returns a policy adapted to the tasks of `env`, for evaluation. The agent's streams and weights do not change."""
    with reseeded(agent, "exploration"):  # type: ignore[arg-type]
        policy = agent.get_exploration_policy()
        collector = Collector(agent, addons, env, Clock())  # type: ignore[arg-type]
        count = agent.exploration_episodes
        found = collector.episodes([count] * env.spec.num_envs, {}, 0, policy)
        rollout = collect_episodes((step for step, _ in found), env.spec, count)
    return agent.adapt_policy(policy, addons.relabel(rollout))
