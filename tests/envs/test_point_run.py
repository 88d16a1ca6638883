"""PointRun: what it pays, and what is best in it under a limit, known without learning."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq

from rlrun.envs.point import PointRun

STEPS = 100  # of an episode
Array = NDArray[np.float64]

# z = (distance from the lane, speed along and across it, 1): z' = A z + B force + G gust, paid z'.R z' and -force.force
KEPT, GAIN, DT = PointRun.KEPT, PointRun.GAIN, PointRun.DT
A = np.array([[1, 0, DT * KEPT, 0], [0, KEPT, 0, 0], [0, 0, KEPT, 0], [0, 0, 0, 1]])
B = GAIN * np.array([[0, DT], [1, 0], [0, 1], [0, 0]])
G = np.array([DT, 0, 1, 0])
R = np.zeros((4, 4))
R[0, 0], R[1, 3], R[3, 1] = -1, 0.5, 0.5


def best_gains(price: float) -> list[Array]:
    """Force = K z at every step of an episode, which maximises progress less price times energy: Riccati, backwards."""
    P, gains = np.zeros((4, 4)), []
    for _ in range(STEPS):
        M = R + P  # the gust adds a constant, which changes no decision
        K = np.linalg.solve(price * np.eye(2) - B.T @ M @ B, B.T @ M @ A)
        P = (A + B @ K).T @ M @ (A + B @ K) - price * K.T @ K
        gains.append(K)
    return gains[::-1]


def earned(gains: list[Array], gust: float) -> tuple[float, float]:
    """Expected progress of an episode, and energy a step: second moments of z, forwards."""
    Z, progress, energy = np.diag([0.0, 0, 0, 1]), 0.0, 0.0
    for K in gains:
        energy += np.trace(K @ Z @ K.T)
        Z = (A + B @ K) @ Z @ (A + B @ K).T + gust**2 * np.outer(G, G)
        progress += np.trace(R @ Z)
    return progress, energy / STEPS


def optimum(limit: float, gust: float = 0.2) -> tuple[float, float]:
    """The most progress in an episode with at most so much energy a step on average, and the price of energy there.

    Whoever knows the time and may push harder than 1 has it; so nobody has more. The problem is convex: no gap."""
    price = float(np.exp(brentq(lambda log: earned(best_gains(np.exp(log)), gust)[1] - limit, -1, 4)))
    return earned(best_gains(price), gust)[0], price


def test_the_optimum_of_a_run_without_wind_is_that_of_its_geometry() -> None:
    """Then force only pays along x: each step's counts for all later ones, and the best is in proportion to that."""
    worth = GAIN * (1 - KEPT ** np.arange(STEPS, 0, -1)) / (1 - KEPT)
    progress, price = optimum(0.2, gust=0.0)
    assert progress == pytest.approx(np.sqrt(0.2 * STEPS) * np.linalg.norm(worth))
    assert price == pytest.approx(np.linalg.norm(worth) / (2 * np.sqrt(0.2 * STEPS)))


def test_the_environment_pays_what_the_optimum_promises() -> None:
    env, gains, rng = PointRun(), best_gains(optimum(0.2)[1]), np.random.default_rng(0)
    paid = np.zeros((300, 2))
    for episode in range(len(paid)):
        obs, _ = env.reset(seed=int(rng.integers(2**31)))
        for K in gains:
            obs, reward, *_ = env.step(K @ [*obs, 1.0])
            paid[episode] += reward
    mean, error = paid.mean(0), paid.std(0) / np.sqrt(len(paid))
    assert optimum(0.2)[0] == pytest.approx(75.6, abs=0.05)
    assert np.all(np.abs(mean - [optimum(0.2)[0], -0.2 * STEPS]) < 4 * error) and np.all(error < 1)


def test_no_other_gains_of_the_same_energy_make_more_progress() -> None:
    rng, (most, price) = np.random.default_rng(0), optimum(0.2)
    for _ in range(20):
        other = [K + 0.1 * rng.standard_normal(K.shape) for K in best_gains(price)]
        progress, energy = earned(other, 0.2)
        assert progress - price * energy * STEPS < most - price * 0.2 * STEPS


def test_a_step_counted_by_hand() -> None:
    env = PointRun(gust=0.0)
    env.reset(seed=0)
    obs, reward, terminated, truncated, _ = env.step(np.array([1.0, 0.5]))
    assert obs.tolist() == pytest.approx([0.04, 0.4, 0.2]) and not terminated and not truncated
    assert reward.tolist() == pytest.approx([0.4 - 0.04**2, -1.25])
