"""Two tasks with goals, for hindsight replay: flipping bits (arXiv 1707.01495, section 3.1), and reaching a point.

Observations are dicts with `observation`, `achieved_goal` and `desired_goal`, as in Gymnasium-Robotics. The reward of a
step is 0 if it achieves the goal and -1 if not; `compute_reward` computes rewards for any goals, also for batches.
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rlrun.types import Info

Observation = dict[str, np.ndarray]


class BitFlip(gym.Env):
    """Action i flips bit i of n bits; the goal is another random string of bits.

    An episode terminates at the goal, and is truncated after n steps. Random play of 15 bits almost never gets there.
    """

    def __init__(self, bits: int = 15):
        if bits < 1:
            raise ValueError(f"bits={bits}: must be at least 1")
        self.observation_space = Dict(
            observation=MultiBinary(bits), achieved_goal=MultiBinary(bits), desired_goal=MultiBinary(bits)
        )
        self.action_space = Discrete(bits)
        self.num_bits = bits
        self.state = np.zeros(bits, np.int8)
        self.goal = np.zeros(bits, np.int8)
        self.num_steps = 0

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: object) -> np.ndarray:
        """Returns 0 where goals [..., bits] are equal, and -1 elsewhere."""
        return self.compute_terminated(achieved_goal, desired_goal, info) - 1.0

    def compute_terminated(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: object) -> np.ndarray:
        """Returns whether goals [..., bits] are equal, [...] bool."""
        return np.all(achieved_goal == desired_goal, -1)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[Observation, Info]:
        super().reset(seed=seed)
        self.state = self.np_random.integers(2, size=self.num_bits).astype(np.int8)
        self.goal = self.state.copy()
        while np.array_equal(self.goal, self.state):
            self.goal = self.np_random.integers(2, size=self.num_bits).astype(np.int8)
        self.num_steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, Info]:
        self.state[action] ^= 1
        self.num_steps += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        terminated = bool(self.compute_terminated(self.state, self.goal, {}))
        truncated = self.num_steps >= self.num_bits and not terminated
        return self._seen(), reward, terminated, truncated, {"is_success": terminated}

    def _seen(self) -> Observation:
        return _observation(self.state, self.goal)


class PointReach(gym.Env):
    """A point in the square [-1, 1]^2 moves by at most 0.1 per step in x and y, to a random goal.

    The goal is achieved within 0.05 of it. As in the Fetch tasks, reaching it ends no episode, and an episode is a
    success if its last step achieves the goal.
    """

    STEP = 0.1
    NEAR = 0.05

    def __init__(self) -> None:
        place = Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = Dict(observation=place, achieved_goal=place, desired_goal=place)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.at = np.zeros(2, np.float32)
        self.goal = np.zeros(2, np.float32)

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: object) -> np.ndarray:
        """Returns 0 where goals [..., 2] are near each other, and -1 elsewhere."""
        distance = np.linalg.norm(np.asarray(achieved_goal) - desired_goal, axis=-1)
        return (distance < self.NEAR) - 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[Observation, Info]:
        super().reset(seed=seed)
        self.at, self.goal = self.np_random.uniform(-1.0, 1.0, (2, 2)).astype(np.float32)
        return self._seen(), {}

    def step(self, action: object) -> tuple[Observation, float, bool, bool, Info]:
        self.at = np.clip(self.at + self.STEP * np.asarray(action), -1.0, 1.0).astype(np.float32)
        reward = float(self.compute_reward(self.at, self.goal, {}))
        return self._seen(), reward, False, False, {"is_success": reward == 0.0}

    def _seen(self) -> Observation:
        return _observation(self.at, self.goal)


def _observation(state: np.ndarray, goal: np.ndarray) -> Observation:
    """Returns the observation of a task whose achieved goal is its state."""
    return {"observation": state.copy(), "achieved_goal": state.copy(), "desired_goal": goal.copy()}


if "rlrun/BitFlip-v0" not in gym.registry:
    gym.register("rlrun/BitFlip-v0", f"{__name__}:BitFlip")
if "rlrun/PointReach-v0" not in gym.registry:
    gym.register("rlrun/PointReach-v0", f"{__name__}:PointReach", max_episode_steps=50)
