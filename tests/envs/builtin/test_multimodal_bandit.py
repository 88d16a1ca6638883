"""The multimodal bandit: one global and four local maxima, which a gradient of the reward does not leave."""

import gymnasium as gym
import numpy as np
import pytest

import rlrun.envs.builtin  # noqa: F401 (registers its id)
from rlrun.envs.builtin.multimodal_bandit import CENTRES, HEIGHTS


def pulled(action: np.ndarray) -> tuple[float, bool]:
    env = gym.make("rlrun/MultimodalBandit-v0", disable_env_checker=True)
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(action.astype(np.float32))
    assert obs.shape == (0,) and terminated and not truncated
    return float(reward), info["is_success"]


@pytest.mark.parametrize("i", range(len(CENTRES)))
def test_every_centre_of_the_multimodal_bandit_is_a_local_maximum(i: int) -> None:
    reward, success = pulled(CENTRES[i])
    assert reward == pytest.approx(HEIGHTS[i]) and success == (i == 0)
    for step in 0.05 * np.vstack([np.eye(3), -np.eye(3)]):
        assert pulled(CENTRES[i] + step)[0] < reward


def test_global_maximum_of_the_multimodal_bandit_is_found_by_one_random_action_in_a_hundred() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (3000, 3))
    found = [pulled(action)[1] for action in actions]
    assert 0.002 < np.mean(found) < 0.02
