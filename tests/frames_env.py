"""Environments with images, named by their path in whole runs: `env=tests/frames_env.py:Frames`."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SIZE = 16


class Frames(gym.Env):
    """A bright column that moves with the action; it ends at the edge."""

    observation_space = spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.column = int(self.np_random.integers(3, SIZE - 3))
        return self._frame(), {}

    def step(self, action):
        self.column += 2 * int(action) - 1
        return self._frame(), 1.0, self.column in (0, SIZE - 1), False, {}

    def _frame(self):
        frame = np.zeros((SIZE, SIZE, 1), np.uint8)
        frame[:, self.column] = 200
        return frame


class GoalFrames(Frames):
    """Frames beside the column as an achieved goal; the desired goal is the right edge."""

    def __init__(self):
        goal = spaces.Box(0, SIZE, (1,), np.float32)
        self.observation_space = spaces.Dict(
            {"observation": Frames.observation_space, "achieved_goal": goal, "desired_goal": goal}
        )

    def _frame(self):
        achieved, desired = np.array([self.column], np.float32), np.array([SIZE - 1], np.float32)
        return {"observation": super()._frame(), "achieved_goal": achieved, "desired_goal": desired}

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        reward = self.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
        return obs, float(reward), terminated, truncated, info

    def compute_reward(self, achieved_goal, desired_goal, info):
        return (achieved_goal == desired_goal).all(-1).astype(np.float32)
