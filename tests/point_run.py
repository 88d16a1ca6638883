"""The optimum of PointRun under a limit on energy: a linear-quadratic problem, solved without learning."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from rlrun.envs.builtin.point import PointRun

STEPS = 100  # of an episode
Array = NDArray[np.float64]

# z = (distance from the lane, speed along and across it, 1): z' = A z + B force + G gust; rewards z'.R z', -force.force
KEPT, GAIN, DT = PointRun.KEPT, PointRun.GAIN, PointRun.DT
A = np.array([[1, 0, DT * KEPT, 0], [0, KEPT, 0, 0], [0, 0, KEPT, 0], [0, 0, 0, 1]])
B = GAIN * np.array([[0, DT], [1, 0], [0, 1], [0, 0]])
G = np.array([DT, 0, 1, 0])
R = np.zeros((4, 4))
R[0, 0], R[1, 3], R[3, 1] = -1, 0.5, 0.5


def best_gains(multiplier: float) -> list[Array]:
    """Returns gains K of force = K z for each step that maximise progress - multiplier * energy: Riccati, backwards."""
    P, gains = np.zeros((4, 4)), []
    for _ in range(STEPS):
        M = R + P  # the gust adds a constant, which does not affect the optimum
        K = np.linalg.solve(multiplier * np.eye(2) - B.T @ M @ B, B.T @ M @ A)
        P = (A + B @ K).T @ M @ (A + B @ K) - multiplier * K.T @ K
        gains.append(K)
    return gains[::-1]


def earned(gains: list[Array], gust: float) -> tuple[float, float]:
    """Returns expected progress of an episode and energy per step, by second moments of z, forwards."""
    Z, progress, energy = np.diag([0.0, 0, 0, 1]), 0.0, 0.0
    for K in gains:
        energy += np.trace(K @ Z @ K.T)
        Z = (A + B @ K) @ Z @ (A + B @ K).T + gust**2 * np.outer(G, G)
        progress += np.trace(R @ Z)
    return progress, energy / STEPS


def optimum(limit: float, gust: float = 0.2) -> tuple[float, float]:
    """Returns the maximum progress in an episode for a mean energy per step, and the multiplier of energy there.

    This is an upper bound for agents, because the optimal policy depends on time and may push harder than 1.
    The problem is convex, so there is no duality gap."""
    multiplier = float(np.exp(brentq(lambda log: earned(best_gains(np.exp(log)), gust)[1] - limit, -1, 4)))
    return earned(best_gains(multiplier), gust)[0], multiplier
