"""Vector envs in torch behind Gymnasium's API, for `gymnasium.make_vec`. Runs step the simulators themselves."""

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from rlrun.envs.simulators.torch_env import TorchEnv
from rlrun.nested import mapped


class InGymnasium(VectorEnv):
    """A simulator with NumPy arrays. Episodes are reset within the step; their last observations are in the infos."""

    def __init__(self, inner: TorchEnv):
        self.inner, self.num_envs, self.begun = inner, inner.num_envs, False
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space: gym.Space = inner.single_observation_space
        self.single_action_space: gym.Space = inner.single_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(  # type: ignore[override]  # the seed may be a list, as in Gymnasium's own vector envs
        self, *, seed: int | list[int] | None = None, options: object = None
    ) -> tuple[object, dict[str, object]]:
        if seed is not None or not self.begun:
            seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self.begun = True
        return mapped(np.asarray, self.inner.reset(seed)), {}

    def step(self, actions: ArrayLike) -> tuple[object, np.ndarray, np.ndarray, np.ndarray, dict[str, object]]:
        obs, reward, terminated, truncated, last = self.inner.step(torch.as_tensor(np.asarray(actions)))
        ended = np.asarray(terminated | truncated)
        infos: dict[str, object] = {}
        if ended.any():
            infos = {"final_obs": mapped(np.asarray, last), "_final_obs": ended}
        return mapped(np.asarray, obs), np.asarray(reward), np.asarray(terminated), np.asarray(truncated), infos
