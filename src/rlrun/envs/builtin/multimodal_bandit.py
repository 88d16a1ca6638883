"""A bandit with a continuous action in three dimensions, whose reward has one global and four local maxima."""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from rlrun.types import Info

CENTRES = np.array([[0.7, -0.7, 0.7], [0.0, 0.0, 0.0], [-0.6, 0.6, 0.0], [-0.7, -0.7, -0.7], [0.6, 0.7, -0.6]])
HEIGHTS = np.array([1.0, 0.5, 0.6, 0.4, 0.5])  # the first is the global maximum
WIDTHS = np.array([0.25, 0.5, 0.4, 0.4, 0.4])


class MultimodalBandit(gym.Env):
    """The reward of an action a in [-1, 1]^3 is max_i height_i exp(-|a - centre_i|^2 / (2 width_i^2)).

    An episode has one step, and observations are empty. The global maximum is narrow and near a corner. The
    local maxima are wide, and one is in the middle, so a policy that follows the gradient of the reward ends in one of
    them. An episode is a success if the reward is above all local maxima.
    """

    observation_space = Box(-1.0, 1.0, (0,), np.float32)
    action_space = Box(-1.0, 1.0, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        return np.zeros(0, np.float32), {}

    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, Info]:
        distance = np.linalg.norm(np.asarray(action, np.float64) - CENTRES, axis=1)
        reward = float(np.max(HEIGHTS * np.exp(-(distance**2) / (2 * WIDTHS**2))))
        return np.zeros(0, np.float32), reward, True, False, {"is_success": reward > HEIGHTS[1:].max()}


gym.register("rlrun/MultimodalBandit-v0", f"{__name__}:MultimodalBandit")
