"""The vocabulary every part of rlrun shares: what a batch, a step, a space specification and a context are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:
    import gymnasium as gym
    from torch import Tensor

Batch = dict[str, Any]
"""Tensors by name, nested for Dict observations. `Transition`, `RolloutBatch`, `PopulationBatch` and `MetaBatch` list
the keys of those that reach an agent, with their shapes, writers and readers."""

Metrics = dict[str, "Tensor"]
"""0-d tensors, detached, on the agent's device; never a float, so that logging alone decides when to synchronise."""


MASK = "action_mask"
"""An entry of a Dict observation, [batch, choices of the action]: 0 where one is forbidden. No input of a network."""


GOAL = "goal"
"""An entry of a Dict observation: what to pursue, where an add-on says so."""


Return = float | list[float]
"""Of an episode: the sum of its rewards; of a reward vector, of each component."""


class Objective(NamedTuple):
    """What reward vectors are judged by: their weighted sum, where no component is below its floor."""

    weights: tuple[float, ...]
    floors: tuple[float | None, ...]  # the least mean a step; None: anything


class Bonus(NamedTuple):
    """An intrinsic reward: one more column beside the environment's, with returns and advantages of its own."""

    gamma: float  # discount per step
    episodic: bool  # whether its returns end with episodes
    coef: float  # of its advantage, which is added to that of the environment's reward


@dataclass(frozen=True)
class Spec:
    """What an agent must know about its environments. Every shape comes from here, never from a config."""

    obs: Any  # the space of one environment
    action: Any  # the space of one environment; Box actions are rescaled to [-1, 1] where they are bounded
    num_envs: int
    reward_dim: int = 1  # above 1 the reward is a vector
    objective: Objective | None = None  # of a reward vector of the environment; None: its reward is one number
    bonuses: tuple[Bonus, ...] = ()  # what the last columns of the reward are, where add-ons put them there
    frame_stack: int = 1  # how many frames an image observation stacks, oldest first
    reward_fn: Callable[..., Any] | None = None  # (obs, action, next_obs) -> reward, for planners and relabelling
    native_action: "gym.Space | None" = None  # the environment's own; None: as `action`

    @property
    def own_rewards(self) -> int:
        """Number of reward columns of the environment itself, without those of add-ons."""
        return self.reward_dim - len(self.bonuses)

    @property
    def shown_action(self) -> "gym.Space":
        """The action space that a user knows."""
        return self.action if self.native_action is None else self.native_action


class Step(NamedTuple):
    """One vector step. Leading dimension: `num_envs`. Resets happen inside the step in which an episode ends."""

    obs: Any  # to act on next: after a reset where an episode ended
    reward: "Tensor"  # [num_envs], or [num_envs, reward_dim]
    terminated: "Tensor"  # [num_envs] bool: the task ended, nothing comes after, do not bootstrap
    truncated: "Tensor"  # [num_envs] bool: cut from outside, bootstrap with final_obs
    final_obs: Any  # the true successor; equals obs where no episode ended
    action: "Tensor"  # as executed, after clipping
    weight: "Tensor"  # [num_envs] float: 0 where the row is no transition (a simulator's reset step), else 1
    info: dict[str, Any]  # "episodes": list of (Return, length) that ended in this step;
    # "success", where environments tell: by index of those whose episode ended, whether it was a success at its end;
    # "own_returns", in evaluation with wrappers: by the same index, the sums [reward_dim] of rewards beneath them;
    # "restarted", where environments broke and were made anew: a line for each


@dataclass(frozen=True)
class Context:
    """Where the run stands when `update` is called."""

    updates: int  # updates done before this one
    env_steps: int  # transitions seen
    progress: float  # env_steps over the horizon of the schedules, 0 to 1
    data: Any = None  # read access to the run's buffer: all(), sample(n), read(ids); None without one


class Timesteps(TypedDict, total=False):
    """Keys of every batch of timesteps. [...] is [B] or [T, B] in a `Transition`, and [T, N] in a `RolloutBatch`.

    Beside these keys, extras named `carry.*` [..., *] are stored as an agent or an add-on returned them with an action;
    the next `act` gets them in its carry.
    """

    # Observation acted on; add-ons put a goal, a memory or a latent state into it or in its place.
    # Written by buffers/replay.py, buffers/rollout.py; read by agents and add-ons.
    obs: Any  # [..., *space]
    # The true successor, also where an episode ended; in a Transition that of its last timestep.
    # Written by buffers/replay.py, buffers/rollout.py; read by agents and add-ons.
    next_obs: Any  # [..., *space]
    # Written by buffers/replay.py, buffers/rollout.py; read by agents and add-ons.
    action: "Tensor"  # [..., *space]
    # Reward of the environment or of all reward modules; in a Transition the discounted sum over `n_steps` timesteps.
    # Written by buffers/replay.py, buffers/rollout.py, core/addon.py, addons/rewards/total.py; read by agents.
    reward: "Tensor"  # [...] or, of reward vectors, [..., columns]
    # 1 or True where the episode terminated: no bootstrap. In a Transition that of its last timestep.
    # Written by buffers/replay.py, buffers/rollout.py; read by agents.
    terminated: "Tensor"  # [...]
    # 1 or True where the episode was truncated: bootstrap from `next_obs`.
    # Written by buffers/replay.py, buffers/rollout.py; read by on-policy agents.
    truncated: "Tensor"  # [...]
    # 0 where the row is masked, times the importance weight of prioritised replay; [B] also for sequences.
    # Written by buffers/replay.py, buffers/rollout.py, buffers/prioritized.py; read by every loss.
    weight: "Tensor"  # [...]
    # 1 or True for rows of a data set or of demonstrations.
    # Written by buffers/mixed.py, buffers/demo_lines.py; read by agents that clone behaviour.
    shown: "Tensor"  # [...]
    # Weights of the components of a reward vector, of one batch.
    # Written by addons/rewards/fixed.py, addons/rewards/lagrangian.py; read by agents that take reward vectors.
    reward_weights: "Tensor"  # [columns]
    # Intrinsic rewards as they were stored, one column for each reward module.
    # Written by core/addon.py; read by addons/rewards/total.py.
    intrinsic_rewards: "Tensor"  # [..., modules]
    # Sum of the intrinsic rewards as they count now, a part of `reward`.
    # Written by addons/rewards/total.py; read by its metrics.
    bonus: "Tensor"  # [...]
    # Rows that the representation learns from: consecutive steps out of replay, else the whole rollout.
    # Written by addons/representation/predictive.py; read by it.
    training_batch: Batch  # [T, B] or [T, N]


class Transition(Timesteps, total=False):
    """Keys of a batch out of replay: transitions [B, ...], or sequences [T, B, ...] for agents that learn from them."""

    # Number of rewards in `reward`: below `algo.n_step` where the episode or the data end.
    # Written by buffers/replay.py; read by agents, which discount by gamma^n_steps.
    n_steps: "Tensor"  # [...]
    # Flat index of the transition (or of the first one after the burn-in): row * num_envs + env.
    # Written by buffers/replay.py; read by buffers/prioritized.py and by bootstrapped ensembles.
    index: "Tensor"  # [B]
    # How many vector steps ago it was collected.
    # Written by buffers/replay.py; read by plug-ins alone.
    age: "Tensor"  # [B]
    # 1 for as long as the episode goes on in a sequence; beyond, steps are repeated.
    # Written by buffers/replay.py; read by agents that take sequences.
    mask: "Tensor"  # [T, B]
    # Consecutive steps from each sampled one on, a batch of sequences with a `mask` of its own.
    # Written by buffers/replay.py; read by addons/representation/predictive.py, which removes it.
    next_steps: Batch  # [T, B]
    # Improved policy of the search, an extra of MuZero.
    # Written by agents/model_based/muzero.py; read by it.
    policy: "Tensor"  # [T, B, actions]
    # Hidden state of recurrent networks before the timestep, an extra of recurrent agents.
    # Written by networks/recurrent.py; read by addons/memory.py, which puts it into `obs`.
    memory: "Tensor"  # [T, B, size]


class RolloutBatch(Timesteps, total=False):
    """Keys of an on-policy rollout [T, N, ...]; N also counts demonstrations that stand beside the environments."""

    # True where the row is the first of its episode.
    # Written by buffers/rollout.py; read by addons/memory.py and linear baselines.
    first: "Tensor"  # [T, N]
    # Log-probability of the action under the policy that acted, an extra of policy gradient agents.
    # Written by agents/policy/a2c.py, agents/meta/maml.py, buffers/demo_lines.py; read by policy gradient agents.
    log_prob: "Tensor"  # [T, N]
    # Hidden state of recurrent networks before the timestep, an extra of recurrent agents.
    # Written by networks/recurrent.py; read by addons/memory.py, which puts it into `obs`.
    memory: "Tensor"  # [T, N, size]
    # Rows as an intrinsic reward module preprocessed them.
    # Written by addons/rewards/intrinsic/bonus.py; read by it.
    explored: Batch  # [T, N]


class PopulationBatch(TypedDict, total=False):
    """Keys of a batch of evolution."""

    # Parameter vectors under trial.
    # Written by loops/evolution.py; read by evolution strategies.
    params: "Tensor"  # [members, P]
    # Mean return of each of them.
    # Written by loops/evolution.py; read by evolution strategies.
    fitness: "Tensor"  # [members]


class MetaBatch(TypedDict, total=False):
    """Keys of a batch of meta-learning: two `RolloutBatch`es, in which every environment has a task of its own."""

    # Rollout of the exploration policy.
    # Written by loops/meta.py; read by MAML.
    explored: Batch  # [T, N]
    # Rollout of the adapted policies.
    # Written by loops/meta.py; read by MAML.
    adapted: Batch  # [T, N]


OwnBatch = TypedDict(
    "OwnBatch",
    {
        # Prediction of the critic when the rollout was collected.
        # Written by agents/policy/a2c.py; read by agents/policy/critic.py.
        "value": "Tensor",  # [T, N] or, of several rewards, [T, N, columns]
        # Target of the critic.
        # Written by agents/policy/a2c.py; read by agents/policy/critic.py.
        "return": "Tensor",  # [T, N] or, of several rewards, [T, N, columns]
        # Advantage estimates, of all rewards together.
        # Written by agents/policy/a2c.py, agents/meta/maml.py; read by policy losses.
        "advantage": "Tensor",  # [T, N]
        # Number of tasks behind the rows.
        # Written by agents/meta/maml.py; read by it.
        "tasks": int,  # []
        # Number of transitions in the buffer.
        # Written by agents/bandits/variational.py; read by it.
        "stored": "Tensor",  # []
    },
    total=False,
)
"""Keys that agents add to a batch inside `update`. In functional form because `return` is a keyword."""


def carried(extras: Batch, first: "Tensor") -> Batch:
    """What the next `act` is given beside the observation: `first`, and of these extras those named `carry.*`."""
    return {name: value for name, value in extras.items() if name.startswith("carry.")} | {"first": first}
