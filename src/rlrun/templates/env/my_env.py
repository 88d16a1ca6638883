"""A point that must reach a goal on the plane.

pytest my_env/
rlrun train algo=sac env=./my_env/my_env.py:MyEnv
"""

from typing import Any

import gymnasium as gym
import numpy as np


class MyEnv(gym.Env):
    """The agent sees its position and the goal, and chooses a velocity.

    The reward is minus the distance to the goal. An episode terminates at the goal, and is truncated after `max_steps`.
    """

    metadata = {"render_modes": []}
    observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)  # position x, y and goal x, y
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)  # velocity x, y

    def __init__(self, speed: float = 0.1, radius: float = 0.1, max_steps: int = 100):
        """Takes the settings `env.kwargs.<name>`."""
        self.speed = speed
        self.radius = radius
        self.max_steps = max_steps

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode. All random numbers come from `self.np_random`, so that seeds repeat and runs resume."""
        super().reset(seed=seed)
        self.steps = 0
        self.position = self.np_random.uniform(-1.0, 1.0, 2)
        self.goal = self.np_random.uniform(-1.0, 1.0, 2)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Returns observation, reward, terminated (the task has ended), truncated (out of time) and info."""
        self.steps += 1
        velocity = self.speed * np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)
        self.position = np.clip(self.position + velocity, -1.0, 1.0)
        distance = float(np.linalg.norm(self.position - self.goal))
        terminated = distance < self.radius
        truncated = self.steps >= self.max_steps
        info = {}
        if terminated or truncated:
            info["is_success"] = terminated  # logged as a success rate
        return self._observation(), -distance, terminated, truncated, info

    def _observation(self) -> np.ndarray:
        return np.concatenate([self.position, self.goal]).astype(np.float32)
