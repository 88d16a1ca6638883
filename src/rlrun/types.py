"""The vocabulary every part of rlrun shares: what a batch, a step, a space specification and a context are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import gymnasium as gym
    from torch import Tensor

Batch = dict[str, Any]
"""Tensors by name. Nested for Dict observations. A replay batch carries `n_steps`, `weight`, `index` and `age`."""

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
    objective: Objective | None = None  # of a reward vector of the environment; None: it pays one number
    bonuses: tuple[Bonus, ...] = ()  # what the last columns of the reward are, where add-ons put them there
    frame_stack: int = 1  # how many frames an image observation stacks, oldest first
    reward_fn: Callable[..., Any] | None = None  # (obs, action, next_obs) -> reward, for planners and relabelling
    native_action: "gym.Space | None" = None  # the environment's own; None: as `action`

    @property
    def own_rewards(self) -> int:
        """Numbers that the environment itself pays a step, without what add-ons put beside them."""
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


def carried(extras: Batch, first: "Tensor") -> Batch:
    """What the next `act` is given beside the observation: `first`, and of these extras those named `carry.*`."""
    return {name: value for name, value in extras.items() if name.startswith("carry.")} | {"first": first}
