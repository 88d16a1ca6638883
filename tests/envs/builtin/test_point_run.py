"""PointRun: its rewards, and the optimum under a limit."""

import numpy as np
import pytest
from point_run import GAIN, KEPT, STEPS, best_gains, earned, optimum

from rlrun.envs.builtin.point import PointRun


def test_the_optimum_of_a_run_without_wind_is_that_of_its_geometry() -> None:
    """Only force along x has a reward. It acts on all later steps, and the best force is proportional to this."""
    value = GAIN * (1 - KEPT ** np.arange(STEPS, 0, -1)) / (1 - KEPT)
    progress, multiplier = optimum(0.2, gust=0.0)
    assert progress == pytest.approx(np.sqrt(0.2 * STEPS) * np.linalg.norm(value))
    assert multiplier == pytest.approx(np.linalg.norm(value) / (2 * np.sqrt(0.2 * STEPS)))


def test_point_run_rewards_of_the_optimal_policy_match_its_value() -> None:
    env, gains, rng = PointRun(), best_gains(optimum(0.2)[1]), np.random.default_rng(0)
    returns = np.zeros((300, 2))
    for episode in range(len(returns)):
        obs, _ = env.reset(seed=int(rng.integers(2**31)))
        for K in gains:
            obs, reward, *_ = env.step(K @ [*obs, 1.0])
            returns[episode] += reward
    mean, error = returns.mean(0), returns.std(0) / np.sqrt(len(returns))
    assert optimum(0.2)[0] == pytest.approx(75.6, abs=0.05)
    assert np.all(np.abs(mean - [optimum(0.2)[0], -0.2 * STEPS]) < 4 * error) and np.all(error < 1)


def test_no_other_gains_of_the_same_energy_make_more_progress() -> None:
    rng, (most, multiplier) = np.random.default_rng(0), optimum(0.2)
    for _ in range(20):
        other = [K + 0.1 * rng.standard_normal(K.shape) for K in best_gains(multiplier)]
        progress, energy = earned(other, 0.2)
        assert progress - multiplier * energy * STEPS < most - multiplier * 0.2 * STEPS


def test_point_run_step_by_hand() -> None:
    env = PointRun(gust=0.0)
    env.reset(seed=0)
    obs, reward, terminated, truncated, _ = env.step(np.array([1.0, 0.5]))
    assert obs.tolist() == pytest.approx([0.04, 0.4, 0.2]) and not terminated and not truncated
    assert reward.tolist() == pytest.approx([0.4 - 0.04**2, -1.25])
