"""Functions as environments: known values, a minimum of 0 at the documented point, one step, no observation."""

import gymnasium as gym
import numpy as np
import pytest

import rlrun.envs.builtin  # noqa: F401 (registers its ids)


def cost(name: str, action: list[float]) -> float:
    env = gym.make(f"rlrun/{name}-v0", dim=len(action), disable_env_checker=True)
    obs, _ = env.reset(seed=0)
    after, reward, terminated, truncated, _ = env.step(np.array(action, np.float32))
    assert obs.shape == after.shape == (0,) and terminated and not truncated
    return -float(reward)


@pytest.mark.parametrize(
    ("name", "start", "minimum"),
    [("Sphere", 27.0, -3.0), ("Ellipsoid", 9 * 1001001.0, -3.0), ("Rosenbrock", 2.0, 1.0)],
)
def test_start_and_minimum(name: str, start: float, minimum: float) -> None:
    assert cost(name, [0.0] * 3) == pytest.approx(start)
    assert cost(name, [minimum] * 3) == 0


def test_rosenbrock_between() -> None:
    assert cost("Rosenbrock", [2.0, 1.0]) == 100 * 9 + 1
