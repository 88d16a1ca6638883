"""Recall: remember a sign until the last step. The rules of `envs.builtin.recall`."""

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.builtin.recall import Recall
from rlrun.envs.simulators.torch_env import State, TorchEnv


class TorchRecall(TorchEnv):
    """Shows a sign (-1 or 1) in the first observation, then `length` times 0.

    The reward is 1 if the last action matches the sign, else 0. The mean return of a policy without memory is 0.5.
    """

    def __init__(self, num_envs: int, max_episode_steps: int | None = None, length: int = 10):
        super().__init__(num_envs, max_episode_steps, Recall.observation_space, Discrete(2))
        self.length = length

    def start(self, random: Stream, count: int) -> State:
        sign = random.integers(2, count) * 2 - 1
        return {"sign": sign, "time": torch.zeros_like(sign)}

    def move(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        time = state["time"] + 1
        over = time > self.length
        recalled = (action == 1) == (state["sign"] > 0)
        return {"sign": state["sign"], "time": time}, (over & recalled).float(), over

    def observe(self, state: State) -> Tensor:
        return (state["sign"] * (state["time"] == 0)).float()[:, None]
