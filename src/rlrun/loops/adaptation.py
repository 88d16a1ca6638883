"""Meta-RL: in a new task, an agent explores for a few episodes, adapts its policy to them, and acts with the result."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from rlrun.buffers.rollout import Rollout
from rlrun.core.addon import Addons
from rlrun.core.clock import Clock
from rlrun.core.collector import Collector, check_ends
from rlrun.core.random import reseeded
from rlrun.types import Batch, Events, Step


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
    policy: MetaPolicy, collector: Collector, count: int, receive: Callable[[Step, Events], Step] | None = None
) -> Batch:
    """Collects `count` whole episodes of every environment, [time, env, ...], relabelled by the add-ons.

    The collector has begun new episodes. An environment that has finished its episodes keeps stepping, with weight 0,
    until all have finished. receive: counts the steps, if they are training steps.
    """
    spec = collector.env.spec
    rollout = Rollout(spec)
    remaining = count * collector.carry["first"].long()  # [num_envs], episodes that have not ended
    num_remaining = int(remaining.sum())
    waited = 0  # timesteps since one of these episodes has ended
    while num_remaining:
        waited += 1
        check_ends(waited, spec)
        action, extras = collector.addons.act(policy, collector.obs, collector.carry, True)
        step, events = collector.step(action, extras)
        if receive is not None:
            step = receive(step, events)
        weight = step["weight"] * (remaining > 0)
        rollout.add(step | {"weight": weight})
        ended = step["terminated"] | step["truncated"]
        remaining = remaining - (ended & (weight > 0)).long()
        if int(remaining.sum()) < num_remaining:
            num_remaining = int(remaining.sum())
            waited = 0
    return collector.addons.relabel(rollout.batch())


def adapted_policy(agent: MetaAgent, addons: Addons, env: Any) -> MetaPolicy:
    """Returns a policy adapted to the tasks of `env`, for evaluation. The agent's streams and weights do not change."""
    with reseeded(agent, "exploration"):  # type: ignore[arg-type]
        policy = agent.get_exploration_policy()
        collector = Collector(agent, addons, env, Clock())  # type: ignore[arg-type]
        collector.begin()
        rollout = collect_episodes(policy, collector, agent.exploration_episodes)
    return agent.adapt_policy(policy, rollout)
