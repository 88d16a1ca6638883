"""Steps environments written in torch: thousands of them in one call, on the agent's device.

A class of `suite/` holds the dynamics of one environment, as functions of tensors. `TorchEnv` does all the rest: time
limits, resets within the step, true successors, random numbers, and the state for snapshots.
"""

from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import torch
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.saving.state import Tree
from rlrun.nested import mapped
from rlrun.tensors import on
from rlrun.types import Obs

UNLIMITED = 2**31 - 1  # steps of an episode
State = dict[str, Tensor]  # tensors [num_envs, ...] by name


class TorchEnv:
    """A Simulator, as `envs.stepping.accelerated` defines it. Subclasses define `start`, `move` and `observe`.

    These three change neither the object nor their arguments, except that `start` draws from `random`. Constants that
    are tensors, such as tables, belong in `tables`, which is moved to the agent's device.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # none: there are no images
    shows_state = False  # whether observations show the whole state, so that `infer` and `reward` are defined

    def __init__(
        self, num_envs: int, max_episode_steps: int | None, observation_space: gym.Space, action_space: gym.Space
    ):
        """max_episode_steps: steps after which episodes are truncated, or None."""
        self.num_envs, self.limit = num_envs, max_episode_steps or UNLIMITED
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.tables: dict[str, Tensor] = {}
        self.to("cpu")

    def start(self, random: Stream, count: int) -> State:
        """Returns the states of `count` new episodes. Random numbers may come from `random` only."""
        raise NotImplementedError

    def move(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        """Returns the next states, rewards [num_envs], and terminated [num_envs].

        action: [num_envs, ...] in the environment's units, float32 or int32.
        """
        raise NotImplementedError

    def observe(self, state: State) -> Obs:
        """Returns observations [num_envs, ...], or a dict of these."""
        raise NotImplementedError

    def infer(self, obs: Tensor) -> State:
        """Returns the states that observations [num_envs, ...] show."""
        raise NotImplementedError

    def reward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Returns the rewards [num_envs] of steps between two observations. action: as in `move`."""
        raise NotImplementedError

    def to(self, device: torch.device | str) -> None:
        """Moves to the agent's device. A reset, or a restored state, must follow."""
        self.device = torch.device(device)
        self.tables = on(self.device, self.tables)

    def reset(self, seed: int | None) -> Obs:
        if seed is not None:
            self.random = Stream(seed, "episodes", self.device)
        self.state = self.start(self.random, self.num_envs)
        self.steps = torch.zeros(self.num_envs, dtype=torch.int32, device=self.device)
        return self.observe(self.state)

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, Tensor, Any]:
        state, reward, terminated = self.move(self.state, actions)
        steps = self.steps + 1
        truncated = steps >= self.limit
        ended = terminated | truncated
        final_obs = self.observe(state)
        self.steps = steps.masked_fill(ended, 0)
        self.state, obs = self._with_resets(ended, state, final_obs)
        return obs, reward, terminated, truncated, final_obs

    def _with_resets(self, ended: Tensor, state: State, obs: object) -> tuple[State, object]:
        """Returns states and observations, with those of new episodes in the rows of `ended`, [num_envs].

        On a CPU, `start` is called for the ended episodes alone. On a GPU, the step would have to wait until their
        number is computed, so `start` is called for all environments.
        """
        if self.device.type == "cpu":
            rows = ended.nonzero()[:, 0]
            if not len(rows):
                return state, obs
            fresh = self.start(self.random, len(rows))
            merge = partial(_put, rows)
        else:
            fresh = self.start(self.random, self.num_envs)
            merge = partial(_where, ended)
        return mapped(merge, state, fresh), mapped(merge, obs, self.observe(fresh))

    def close(self) -> None: ...

    def get_extra_state(self) -> Tree:
        counts = {"steps": self.steps.cpu(), "seed": self.random.seed}
        return {"state": on(torch.device("cpu"), self.state), **counts, "random": self.random.get_extra_state()}

    def set_extra_state(self, tree: Any) -> None:
        self.state, self.steps = on(self.device, tree["state"]), tree["steps"].to(self.device)
        self.random = Stream(tree["seed"], "episodes", self.device)
        self.random.set_extra_state(tree["random"])


def _put(rows: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Returns a copy of `old` [num_envs, ...] with the values of `new` in the rows with these indices."""
    return old.index_copy(0, rows, new)


def _where(rows: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Returns `new` [num_envs, ...] in the rows [num_envs] that are True, and `old` elsewhere."""
    return torch.where(rows.view(-1, *[1] * (old.ndim - 1)), new, old)
