"""BitFlip: flip bits until they equal a goal (arXiv 1707.01495, section 3.1); as `envs.builtin.goal_tasks.BitFlip`."""

import torch
from gymnasium.spaces import Dict, Discrete, MultiBinary
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.simulators.torch_env import State, TorchEnv
from rlrun.types import Obs

MOST_BITS = 62  # a string of bits is one int64


class TorchBitFlip(TorchEnv):
    """Action i flips bit i. The reward is 0 at the goal, which ends the episode, and -1 elsewhere.

    Episodes are truncated after as many steps as there are bits.
    """

    def __init__(self, num_envs: int, max_episode_steps: int | None = None, bits: int = 15):
        if not 1 <= bits <= MOST_BITS:
            raise ValueError(f"bits={bits}: must be from 1 to {MOST_BITS} in torch")
        string = MultiBinary(bits)
        space = Dict(observation=string, achieved_goal=string, desired_goal=string)
        super().__init__(num_envs, min(bits, max_episode_steps or bits), space, Discrete(bits))
        self.bits = bits
        self.tables["flip"] = 2 ** torch.arange(bits)

    def start(self, random: Stream, count: int) -> State:
        bits = random.integers(2**self.bits, count)
        difference = random.integers(2**self.bits, count, low=1)  # above 0, so that the goal is another string
        return {"bits": bits, "goal": bits ^ difference}

    def move(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        bits, goal = state["bits"] ^ self.tables["flip"][action], state["goal"]
        return {"bits": bits, "goal": goal}, (bits == goal).float() - 1.0, bits == goal

    def observe(self, state: State) -> Obs:
        bits, goal = self._digits(state["bits"]), self._digits(state["goal"])
        return {"observation": bits, "achieved_goal": bits, "desired_goal": goal}

    def _digits(self, string: Tensor) -> Tensor:
        """Returns strings of bits, [num_envs] int64, as [num_envs, bits] int8."""
        return (string[:, None] & self.tables["flip"] != 0).to(torch.int8)
