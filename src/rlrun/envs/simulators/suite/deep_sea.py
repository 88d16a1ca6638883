"""DeepSea: explore a grid whose rewards discourage the way to the treasure (arXiv 1908.03568, section 2.1)."""

import torch
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.builtin import deep_sea
from rlrun.envs.simulators.torch_env import State, TorchEnv


class TorchDeepSea(TorchEnv):
    """The rules of `envs.builtin.deep_sea.DeepSea`, from which it takes the action that means right in each cell."""

    def __init__(self, num_envs: int, max_episode_steps: int | None = None, size: int = 10, instance_seed: int = 0):
        single = deep_sea.DeepSea(size, instance_seed)
        super().__init__(num_envs, max_episode_steps, single.observation_space, single.action_space)
        self.size = size
        self.tables["right"] = torch.from_numpy(single.right)

    def start(self, random: Stream, count: int) -> State:
        zeros = torch.zeros(count, dtype=torch.int64, device=self.device)
        return {"row": zeros, "column": zeros}

    def move(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        row, column = state["row"], state["column"]
        right = action == self.tables["right"][row, column]
        found = right & (column == self.size - 1)
        reward = found.double() - 0.01 / self.size * right.double()
        column = (column + torch.where(right, 1, -1)).clamp(0, self.size - 1)
        return {"row": row + 1, "column": column}, reward, row + 1 == self.size

    def observe(self, state: State) -> Tensor:
        return state["row"] * self.size + state["column"]
