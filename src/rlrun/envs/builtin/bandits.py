"""Multi-armed bandits as vector envs: one call steps thousands of environments, and each episode has one step.

The observation is the index of one of `bandits` problems, the action is an arm. In addition to the reward, a step
reports `regret`, the mean reward of the best arm minus that of the chosen arm, and `best_arm`, whether the best arm was
chosen.
"""

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rlrun.envs.saving.state import Tree, decode, encode
from rlrun.types import Info


class OneStep(gym.vector.VectorEnv):
    """Base of vector envs in which every step ends an episode. Subclasses draw observations and rewards."""

    def __init__(self, num_envs: int, observation: gym.Space, actions: int):
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation, Discrete(actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.rng = np.random.default_rng(0)
        self.seen = self.draw()
        self.ended, self.cut = np.ones(num_envs, bool), np.zeros(num_envs, bool)

    def draw(self) -> np.ndarray:
        """Returns new observations [num_envs, ...]."""
        raise NotImplementedError

    def draw_reward(self, actions: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns rewards [num_envs] for actions on the observations `seen`, and measures (name -> [num_envs])."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.seen = self.draw()
        return self.seen, {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Info]:
        reward, measures = self.draw_reward(actions)
        measures["reward"] = reward
        self.seen = self.draw()
        return self.seen, reward, self.ended, self.cut, {"measures": measures}

    def get_extra_state(self) -> Tree:
        return encode({"rng": self.rng, "seen": self.seen})

    def set_extra_state(self, tree: Any) -> None:
        self.rng, self.seen = decode(tree["rng"], self.rng), decode(tree["seen"])


class MultiArmedBandit(OneStep):
    """Base of bandits with mean rewards [bandits, arms].

    means: [arms] for all bandits, or [bandits, arms]; `arms` is then ignored. If None, they are drawn from
    `instance_seed`, so that training and evaluation have the same bandits. contexts: with "uniform", the bandit is
    drawn anew for every step; with "own", environment i always has bandit i modulo `bandits`.
    """

    def __init__(
        self,
        num_envs: int,
        bandits: int,
        arms: int,
        means: object,
        contexts: Literal["uniform", "own"],
        instance_seed: int,
    ):
        if contexts not in ("uniform", "own"):
            raise ValueError(f"contexts={contexts}: must be uniform or own")
        if means is None:
            self.means = self.draw_means(np.random.default_rng(instance_seed), (bandits, arms))
        else:
            given = np.atleast_2d(np.asarray(means, np.float64))
            if given.ndim != 2 or given.shape[0] not in (1, bandits):
                raise ValueError(f"rewards of shape {given.shape}: must be [arms] or [{bandits}, arms]")
            self.means = np.broadcast_to(given, (bandits, given.shape[1]))
        self.best_means, self.own = self.means.max(1), contexts == "own"
        super().__init__(num_envs, Discrete(bandits), self.means.shape[1])

    def draw_means(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        raise NotImplementedError

    def draw_rewards(self, means: np.ndarray) -> np.ndarray:
        """Returns random rewards with these means, [num_envs]."""
        raise NotImplementedError

    def draw(self) -> np.ndarray:
        if self.own:
            return np.arange(self.num_envs) % len(self.means)
        return self.rng.integers(len(self.means), size=self.num_envs)

    def draw_reward(self, actions: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        means = self.means[self.seen, actions]
        regret = self.best_means[self.seen] - means
        return self.draw_rewards(means), {"regret": regret, "best_arm": regret == 0}


class BernoulliBandit(MultiArmedBandit):
    """The reward is 1 with the arm's probability, else 0.

    If `reward_probs` is None, the probabilities are drawn uniformly from [0, 1].
    """

    def __init__(
        self,
        num_envs: int,
        bandits: int = 1,
        arms: int = 5,
        reward_probs: object = None,
        contexts: Literal["uniform", "own"] = "uniform",
        instance_seed: int = 0,
    ):
        super().__init__(num_envs, bandits, arms, reward_probs, contexts, instance_seed)
        if (self.means < 0).any() or (self.means > 1).any():
            raise ValueError("reward_probs must lie in [0, 1]")

    def draw_means(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return rng.random(shape)

    def draw_rewards(self, means: np.ndarray) -> np.ndarray:
        return (self.rng.random(self.num_envs) < means).astype(np.float64)


class GaussianBandit(MultiArmedBandit):
    """Rewards are normally distributed, with the arm's mean and the standard deviation `reward_std`.

    If `reward_means` is None, the means are drawn from the standard normal distribution.
    """

    def __init__(
        self,
        num_envs: int,
        bandits: int = 10,
        arms: int = 5,
        reward_means: object = None,
        reward_std: float = 1.0,
        contexts: Literal["uniform", "own"] = "uniform",
        instance_seed: int = 0,
    ):
        super().__init__(num_envs, bandits, arms, reward_means, contexts, instance_seed)
        self.reward_std = reward_std

    def draw_means(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return rng.standard_normal(shape)

    def draw_rewards(self, means: np.ndarray) -> np.ndarray:
        return self.rng.normal(means, self.reward_std)


for _bandit in (BernoulliBandit, GaussianBandit):
    gym.register(f"rlrun/{_bandit.__name__}-v0", vector_entry_point=f"{__name__}:{_bandit.__name__}")
