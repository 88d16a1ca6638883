"""Contextual bandits as vector envs: the reward of an arm depends on the observation."""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from rlrun.envs.builtin.bandits import OneStep


class LinearBandit(OneStep):
    """The context is standard normal [dims]. Arm a has reward w_a . context plus normal noise; w_a is a unit vector."""

    def __init__(self, num_envs: int, dims: int = 5, arms: int = 4, noise_std: float = 0.1, instance_seed: int = 0):
        weights = np.random.default_rng(instance_seed).standard_normal((arms, dims))
        self.weights = weights / np.linalg.norm(weights, axis=1, keepdims=True)
        self.noise_std = noise_std
        super().__init__(num_envs, Box(-np.inf, np.inf, (dims,), np.float32), arms)

    def draw(self) -> np.ndarray:
        return self.rng.standard_normal((self.num_envs, self.weights.shape[1]), np.float32)

    def draw_reward(self, actions: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        means = self.seen.astype(np.float64) @ self.weights.T  # [num_envs, arms]
        mean = means[np.arange(self.num_envs), actions]
        regret = means.max(1) - mean
        return self.rng.normal(mean, self.noise_std), {"regret": regret, "best_arm": regret == 0}


class WheelBandit(OneStep):
    """The wheel bandit of Riquelme, Tucker and Snoek 2018 (arXiv 1802.09127), section 5.4.

    Contexts are uniform in the unit disc. There are five arms: the mean reward of arm 0 is 1.2, that of the others 1.0.
    If the context lies outside the radius `delta`, one of the others, depending on the quadrant, has mean reward 50.
    The larger delta is, the rarer this reward is.
    """

    SAFE, LOW, HIGH = 1.2, 1.0, 50.0

    def __init__(self, num_envs: int, delta: float = 0.5, noise_std: float = 0.01):
        if not 0 < delta < 1:
            raise ValueError(f"delta={delta}: must lie between 0 and 1")
        self.delta, self.noise_std = delta, noise_std
        super().__init__(num_envs, Box(-1.0, 1.0, (2,), np.float32), 5)

    def draw(self) -> np.ndarray:
        radius, angle = np.sqrt(self.rng.random(self.num_envs)), 2 * np.pi * self.rng.random(self.num_envs)
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)

    def draw_reward(self, actions: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        x, y = self.seen.T
        outside = np.hypot(x, y) > self.delta
        winner = np.where(outside, 1 + 2 * (x < 0) + (y < 0), 0)
        best = np.where(outside, self.HIGH, self.SAFE)
        other = np.where(actions == 0, self.SAFE, self.LOW)
        mean = np.where(actions == winner, best, other)
        return self.rng.normal(mean, self.noise_std), {"regret": best - mean, "best_arm": actions == winner}


for _bandit in (LinearBandit, WheelBandit):
    gym.register(f"rlrun/{_bandit.__name__}-v0", vector_entry_point=f"{__name__}:{_bandit.__name__}")
