"""Environments whose dynamics are a table, the attribute `P` of their single environments: KeyDoor and DynaMaze."""

from typing import Any

import torch
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.builtin import key_door, maze
from rlrun.envs.simulators.torch_env import State, TorchEnv


class TorchTable(TorchEnv):
    """Follows the table `P` of a single environment, in the form of Gymnasium's toy-text environments.

    P: state -> action -> [(1.0, next state, reward, terminated)]. The observation is the state.
    """

    def __init__(self, num_envs: int, max_episode_steps: int | None, single: Any):
        super().__init__(num_envs, max_episode_steps, single.observation_space, single.action_space)
        # every action has one outcome
        rows = [[outcome for (outcome,) in actions.values()] for actions in single.P.values()]
        _, states, rewards, ends = torch.tensor(rows, dtype=torch.float64).unbind(-1)  # each [state, action]
        self.tables["next"], self.tables["reward"], self.tables["end"] = states.long(), rewards, ends.bool()
        # [state]: the probability that an episode begins in this state or an earlier one
        self.tables["start"] = torch.tensor(single.initial_state_distrib, dtype=torch.float64).cumsum(0)

    def start(self, random: Stream, count: int) -> State:
        drawn = random.uniform(count).double()
        return {"state": torch.searchsorted(self.tables["start"], drawn, right=True)}

    def move(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        index = state["state"], action
        return {"state": self.tables["next"][index]}, self.tables["reward"][index], self.tables["end"][index]

    def observe(self, state: State) -> Tensor:
        return state["state"]


class TorchKeyDoor(TorchTable):
    """The rules of `envs.builtin.key_door.KeyDoor`."""

    def __init__(self, num_envs: int, max_episode_steps: int | None = 100, size: int = 8):
        super().__init__(num_envs, max_episode_steps, key_door.KeyDoor(size))


class TorchDynaMaze(TorchTable):
    """The rules of `envs.builtin.maze.DynaMaze`."""

    def __init__(self, num_envs: int, max_episode_steps: int | None = 2000):
        super().__init__(num_envs, max_episode_steps, maze.DynaMaze())
