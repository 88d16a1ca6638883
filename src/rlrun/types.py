"""Types that all parts of rlrun share: batches, steps, specifications of environments, contexts of updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, Union

if TYPE_CHECKING:
    import gymnasium as gym
    import numpy as np
    from torch import Tensor

Obs = Union["Tensor", dict[str, "Obs"]]
"""Observations: a tensor, or nested dicts of tensors for Dict observations."""

Batch = dict[str, "Tensor"]
"""Tensors by name. `Transition`, `RolloutBatch`, `PopulationBatch` and `MetaBatch` list the keys of the batches that
agents receive, with shapes. Entries that may be nested, such as `obs`, have the type of a tensor too: agents pass them
on to networks and to the functions of `nested`, which take every `Obs`."""

Info = dict[str, object]
"""What an environment reports with an observation, in addition to it; `info` of Gymnasium."""

Metrics = dict[str, "Tensor"]
"""0-d tensors, detached, on the agent's device; those of an update have the names of log rows, such as `loss/critic`.
They are never floats: a conversion would wait for the device, and only logging may do that."""


MASK = "action_mask"
"""Key of the action mask in a Dict observation, [batch, actions]: 0 where an action is forbidden. Networks do not
receive this entry."""


GOAL = "goal"
"""Key of the goal that an add-on puts into a Dict observation."""


Return = float | list[float]
"""Return of an episode: the sum of its rewards. For reward vectors, a list with the sum of each component."""


class Objective(NamedTuple):
    """How runs with reward vectors are ranked: first by how far components fall below their floors, then by the
    weighted sum of the components."""

    weights: tuple[float, ...]
    floors: tuple[float | None, ...]  # required mean of each component per step; None: no requirement


Discount = float | tuple[float, ...]
"""Discount per step: of all reward columns, or of each component of a reward vector."""


class Bonus(NamedTuple):
    """An intrinsic reward in a reward column of its own, with its own returns and advantages."""

    gamma: float  # discount per step
    episodic: bool  # whether its returns stop at the end of an episode
    coef: float  # factor of its advantage in the sum with the advantage of the environment's reward


class Equations(Protocol):
    """Rewards and next observations of an environment, as functions of what the agent sees (envs/equations.py).

    obs: space of the observations [..., D]. Actions are [..., A].
    """

    obs: "gym.Space"

    def reward(self, obs: "Tensor", action: "Tensor", next_obs: "Tensor") -> "Tensor":
        """Returns rewards [...] of steps."""
        ...

    def step(self, obs: "Tensor", action: "Tensor") -> "Tensor":
        """Returns the next observations [..., D]."""
        ...


@dataclass(frozen=True)
class Spec:
    """What an agent may know about its environments. Agents take every shape from the spec, never from a config."""

    obs: Any  # the space of one environment
    action: Any  # the space of one environment; bounded Box actions are rescaled to [-1, 1]
    num_envs: int  # number of environments that are stepped together; in a shard, of all shards
    reward_dim: int = 1  # number of reward columns; above 1 the reward is a vector
    objective: Objective | None = None  # for an environment with a reward vector; None: its reward is a scalar
    discounts: tuple[float, ...] = ()  # of each component of a reward vector; (): all have that of the algorithm
    bonuses: tuple[Bonus, ...] = ()  # intrinsic rewards that add-ons append as the last columns of the reward
    frame_stack: int = 1  # how many frames an image observation stacks, oldest first
    # envs/stepping/goal_rewards.py: rewards of other goals, for hindsight; None: not supported
    goal_rewards: Any = None
    equations: "Equations | None" = None  # of the environment; None: not known
    native_action: "gym.Space | None" = None  # action space of the environment itself; None: the same as `action`
    holds: bool = False  # whether actions are held, so that steps have `n_steps`
    reports: "Mapping[str, gym.Space]" = field(
        default_factory=dict
    )  # what environments declare to report: name -> space
    time_limit: int | None = None  # steps after which an episode is cut; None: not known
    log_info: tuple[str, ...] = ()  # the entries of infos that `Episode.infos` may have
    first_env: int | None = None  # in a shard: the index in the run of its first environment

    @property
    def own_rewards(self) -> int:
        """Number of reward columns of the environment itself, without intrinsic rewards."""
        return self.reward_dim - len(self.bonuses)

    def discount(self, gamma: float) -> Discount:
        """Returns the discount of the environment's rewards. gamma: that of the algorithm."""
        return self.discounts or gamma

    @property
    def shown_action(self) -> "gym.Space":
        """The action space of the environment itself, which users see in messages and in `Policy`."""
        if self.native_action is None:
            return self.action  # type: ignore[no-any-return]
        return self.native_action


class Episode(NamedTuple):
    """The result of a training episode that ended."""

    returned: Return  # sum of the rewards
    length: int  # in steps
    env: int = 0  # index of the environment
    terminated: bool = False  # whether the task ended; else the episode was truncated
    # Success, 0 to 1, as the last step reported it, and the mean over all steps. A step without a report counts as 0.
    # None until an environment has reported success.
    success: float | None = None
    success_fraction: float | None = None
    infos: dict[str, float] | None = None  # entries of the infos of the last step, by name; None without env.log_info


Step = dict[str, "Tensor"]
"""One step of all environments: tensors [num_envs, ...] by name; observations may be nested, as in a `Batch`.

An episode that ends is reset within the same step. Keys are added on the way from the environments to the buffer, and
values are never written to, because several keys may share one tensor.

Environments write:
  following    observation to act on next: the first of the next episode where an episode ended
  next_obs     the true successor of the observation acted on; may be the same object as `following` if no episode ended
  reward       [num_envs], or [num_envs, columns]; each reward module adds a column
  terminated   bool: the task ended, do not bootstrap
  truncated    bool: the episode was cut, for instance by a time limit; bootstrap from `next_obs`
  weight       0 for a masked step (a simulator's reset step), else 1
  executed     the action as the environment got it, clipped to its bounds
  n_steps      for how many steps the action was held; `reward` is their discounted sum. Only if actions are held
  idle         bool: the environment took no step, as its shard waits for others. Only if shards collect whole episodes
  drawn_reward  reward of one of these steps, drawn uniformly. Only if actions were held in this step
and the reports of `Spec.reports` that a learner reads; masked rows have 0.

The collector writes:
  obs          observation acted on
  action       as the agent chose it
  first        bool: `obs` is the first of an episode
  carry.action, carry.reward  copies of `executed` and `reward`, if a learner reads them (`Learner.reads_previous`)
and the extras that agent and add-ons return with an action."""


class Events(NamedTuple):
    """What else happened in a step, for counting and logging. Most steps have none: `NOTHING`."""

    episodes: Sequence[Episode] = ()  # that ended
    # index of the environment -> return [components] of rewards before wrappers
    own_returns: "Mapping[int, np.ndarray]" = MappingProxyType({})
    measures: "Mapping[str, np.ndarray]" = MappingProxyType({})  # name -> [num_envs], reported by simulators
    logged: Sequence[tuple[str, float]] = ()  # names and values that environments logged
    restarted: Sequence[str] = ()  # a line for each environment or worker that failed and was replaced


NOTHING = Events()


@dataclass(frozen=True)
class Context:
    """The counters of the run, passed to `update`."""

    updates: int  # updates before this one
    env_steps: int  # transitions collected so far; on-policy, before the rollout
    progress: float  # fraction of the run that is done, as in `Loop.progress`
    data: Any = None  # read access to the run's replay buffer (core/data.py); None if there is none
    tick_updates: int = 0  # updates before this one in the same tick


class Timesteps(TypedDict, total=False):
    """Keys of every batch of timesteps. [...] is [B] or [T, B] in a `Transition`, and [T, N] in a `RolloutBatch`.

    A batch also has the extras named `carry.*` [..., *] that an agent or an add-on returned with an action; the next
    call of `act` received them in its carry. Extras named `start.*` [B, *] come from replay for the first timestep of
    each sequence alone. With the transform `untransformed`, it has `untransformed.obs` and `untransformed.reward`, as
    the environment returned them.
    """

    # Observation acted on. Add-ons may add a goal or a recurrent state, or replace it by a latent state.
    # Written by buffers/rows.py, buffers/rollout.py; read by agents and add-ons.
    obs: Obs  # [..., *space]
    # The true successor, also where an episode ended. In a Transition: the successor of its last timestep.
    # Written by buffers/rows.py, buffers/rollout.py; read by agents and add-ons.
    next_obs: Obs  # [..., *space]
    # Action: from replay as the environment executed it, in a rollout as the agent chose it.
    # Written by buffers/rows.py, core/collector.py; read by agents and add-ons.
    action: "Tensor"  # [..., *space]
    # Reward of the environment, plus intrinsic rewards. In a Transition: the discounted sum over `n_steps` timesteps.
    # Written by envs/stepping/vector.py, envs/stepping/accelerated.py, core/addon.py, buffers/replay.py,
    # addons/rewards/total.py; read by agents.
    reward: "Tensor"  # [...], or [..., columns] for reward vectors
    # Where the episode terminated: no bootstrap. In a Transition: whether its last timestep terminated, as a float.
    # Written by envs/stepping/vector.py, envs/stepping/accelerated.py, buffers/replay.py; read by agents.
    terminated: "Tensor"  # [...]
    # Where the episode was truncated: bootstrap from `next_obs`. In a Transition, a float.
    # Written by envs/stepping/vector.py, envs/stepping/accelerated.py; read by on-policy agents.
    truncated: "Tensor"  # [...]
    # Weight of the row in every loss: 0 for a masked step, else the importance weight of prioritised replay or 1.
    # Replayed sequences have one weight each, [B].
    # Written by envs/stepping/vector.py, envs/stepping/accelerated.py, buffers/replay.py,
    # buffers/prioritized.py; read by every loss.
    weight: "Tensor"  # [...]
    # 1 or True for rows from a data set or from demonstrations.
    # Written by buffers/mixed.py, buffers/demo_lines.py; read by agents that clone behaviour.
    shown: "Tensor"  # [...]
    # Weights of the components of a reward vector, the same for the whole batch.
    # Written by addons/rewards/fixed.py, addons/rewards/lagrangian.py; read by agents that take reward vectors.
    reward_weights: "Tensor"  # [columns]
    # Unscaled intrinsic rewards as stored, one column for each reward module.
    # Written by core/addon.py; read by addons/rewards/total.py.
    intrinsic_rewards: "Tensor"  # [..., modules]
    # Sum of the scaled intrinsic rewards, which `reward` includes.
    # Written by addons/rewards/total.py; read by the same file.
    bonus: "Tensor"  # [...]
    # Action before the timestep, as it was executed; 0 at the first one of an episode.
    # Written by agents/actor_critic/kl_sac.py, addons/previous.py; read by the same files.
    previous_action: "Tensor"  # [..., *space]
    # Reward of the environment before the timestep; 0 at the first one of an episode.
    # Written by addons/previous.py; read by the same file.
    previous_reward: "Tensor"  # [...], or [..., columns] for reward vectors
    # Rows that the representation learns from: consecutive steps or single ones from replay, or the whole rollout.
    # Written by addons/representation/latent_state.py; read by the same file.
    training_batch: Batch  # [T, B], [B] or [T, N]


class Transition(Timesteps, total=False):
    """Keys of a batch from replay, in addition to those of `Timesteps`: transitions [B, ...], or sequences [T, B, ...]
    for agents that learn from them."""

    # Number of rewards summed in `reward`: less than `algo.n_step` if the episode or the data end earlier, and more if
    # actions are held.
    # Written by buffers/replay.py; read by agents, which discount by gamma^n_steps.
    n_steps: "Tensor"  # [...]
    # Flat index of the transition, row * num_envs + env; for a sequence, of the first transition after the burn-in.
    # Written by buffers/replay.py; read by buffers/prioritized.py and by bootstrapped ensembles.
    index: "Tensor"  # [B]
    # How many timesteps ago the transition was collected.
    # Written by buffers/replay.py; read by plug-ins only.
    age: "Tensor"  # [B]
    # 1 up to the end of the episode, 0 for the repeated steps after it.
    # Written by buffers/replay.py; read by agents that take sequences.
    mask: "Tensor"  # [T, B]
    # Consecutive steps that begin at each sampled step, as a batch of sequences with its own `mask`: as many as the
    # reader of the longest sequences needs. Removed after the last reader.
    # Written by buffers/replay.py; read by addons/representation/predictive.py and by soft actor-critic with
    # `entropy_reward=every_step`.
    next_steps: Batch  # [T, B]
    # Improved policy from the tree search, an extra of MuZero.
    # Written by agents/model_based/muzero.py; read by the same file.
    policy: "Tensor"  # [T, B, actions]
    # Hidden state of recurrent networks before the timestep, an extra of recurrent agents.
    # Written by networks/recurrent.py; read by addons/memory.py, which puts it into `obs`.
    memory: "Tensor"  # [T, B, size]
    # Trajectory of actions before the decision of the timestep, an extra of TAAC; `carry.trajectory` is the one after.
    # Written by agents/actor_critic/taac.py; read by the same file.
    trajectory: "Tensor"  # [T, B, size]
    # 1 at the first timestep of an episode, an extra of KL-regularised SAC.
    # Written by agents/actor_critic/kl_sac.py; read by the same file.
    is_first: "Tensor"  # [B]
    # 1 where the trajectory was replaced by a new one, an extra of TAAC.
    # Written by agents/actor_critic/taac.py; read by the same file.
    switch: "Tensor"  # [T, B]


class RolloutBatch(Timesteps, total=False):
    """Keys of an on-policy rollout [T, N, ...], in addition to those of `Timesteps`. N counts environments, and
    demonstrations appended as columns.

    With `algo.loop=episodes`, N counts episodes. Shorter ones are padded with their last row, at weight 0.

    `next_obs`, and `obs` of stacked images, are `Indexed` (indexed.py): `obs` and `next_obs` share rows in which every
    observation, or frame of a stacked image, is stored once. An add-on may replace them by tensors. Where an episode
    goes on, `next_obs` is the `obs` of the next row; `buffers.consecutive.continues` returns where that is.
    """

    # For how many steps the action was held; `reward` is their discounted sum. Only if actions are held.
    # Written by envs/stepping/vector.py; read by agents/policy/columns.py.
    n_steps: "Tensor"  # [T, N]
    # True for the first row of an episode.
    # Written by core/collector.py; read by addons/memory.py and linear baselines.
    first: "Tensor"  # [T, N]
    # Log-probability of the action under the policy that chose it, an extra of policy gradient agents.
    # Written by agents/policy/a2c.py, agents/meta/maml.py, buffers/demo_lines.py; read by policy gradient agents.
    log_prob: "Tensor"  # [T, N]
    # Hidden state of recurrent networks before the timestep, an extra of recurrent agents.
    # Written by networks/recurrent.py; read by addons/memory.py, which puts it into `obs`.
    memory: "Tensor"  # [T, N, size]
    # Rows that an intrinsic reward module has preprocessed.
    # Written by addons/rewards/intrinsic/bonus.py; read by the same file.
    explored: Batch  # [T, N]


class PopulationBatch(TypedDict, total=False):
    """Keys of the batch of an evolution strategy."""

    # Parameter vectors that were evaluated.
    # Written by loops/evolution.py; read by evolution strategies.
    params: "Tensor"  # [members, P]
    # Mean return of each parameter vector.
    # Written by loops/evolution.py; read by evolution strategies.
    fitness: "Tensor"  # [members]


class MetaBatch(TypedDict, total=False):
    """Keys of a batch of meta-learning: two `RolloutBatch`es in which each environment has its own task."""

    # Rollout of the exploration policy.
    # Written by loops/meta.py; read by MAML.
    explored: Batch  # [T, N]
    # Rollout of the adapted policies.
    # Written by loops/meta.py; read by MAML.
    adapted: Batch  # [T, N]


OwnBatch = TypedDict(
    "OwnBatch",
    {
        # Prediction of the critic at the start of the update.
        # Written by agents/policy/a2c.py; read by agents/policy/critic_updates.py.
        "value": "Tensor",  # [T, N], or [T, N, columns] for several rewards
        # Target of the critic.
        # Written by agents/policy/a2c.py; read by agents/policy/critic_updates.py.
        "return": "Tensor",  # [T, N], or [T, N, columns] for several rewards
        # Advantage estimates, summed over all rewards.
        # Written by agents/policy/a2c.py, agents/meta/maml.py; read by policy losses.
        "advantage": "Tensor",  # [T, N]
        # Action that the trajectory took `n_steps` timesteps later, at `next_obs`.
        # Written by buffers/consecutive.py; read by agents/actor_critic/continuous_sarsa.py.
        "next_action": "Tensor",  # [B, *space]
        # 1 where `next_action` is known, 0 where the episode or the data end before it.
        # Written by buffers/consecutive.py; read by agents/actor_critic/continuous_sarsa.py.
        "has_next_action": "Tensor",  # [B]
        # Number of tasks in the batch.
        # Written by agents/meta/maml.py; read by the same file.
        "tasks": int,  # []
        # Number of transitions in the buffer.
        # Written by agents/bandits/variational.py; read by the same file.
        "stored": "Tensor",  # []
    },
    total=False,
)
"""Keys that agents add to a batch inside `update`. In functional form because `return` is a keyword."""


def carried(extras: Batch, first: "Tensor") -> Batch:
    """Returns the carry for the next `act`: `first`, and the extras named `carry.*`."""
    return {name: value for name, value in extras.items() if name.startswith("carry.")} | {"first": first}


MEASURE = "measure."  # prefix of the extras of `act` that log rows report as means, as they do measures of environments


def measured(extras: Batch) -> dict[str, Any]:
    """Returns the extras named `measure.*`, [num_envs] each, by the rest of their names."""
    return {name.removeprefix(MEASURE): value for name, value in extras.items() if name.startswith(MEASURE)}
