"""CartPole: balance a pole on a cart, after Barto, Sutton and Anderson (1983). Gymnasium's CartPole-v1."""

import math

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.simulators.torch_env import State, TorchEnv

GRAVITY = 9.8  # m/s^2
POLE_MASS = 0.1  # kg
TOTAL_MASS = 1.1  # kg, with the cart
LENGTH = 0.5  # m, half of the pole
FORCE = 10.0  # N
TAU = 0.02  # seconds per step
MAX_X = 2.4  # m
MAX_THETA = math.radians(12)

HIGH = np.array([2 * MAX_X, np.inf, 2 * MAX_THETA, np.inf], np.float32)


class TorchCartPole(TorchEnv):
    """Actions push the cart to the left (0) or right (1). The reward is 1 per step.

    The observation is the state: position and speed of the cart, angle and angular speed of the pole. The episode ends
    when the cart is more than 2.4 m from the middle or the pole leans by more than 12 degrees.
    """

    def __init__(self, num_envs: int, max_episode_steps: int | None = 500):
        super().__init__(num_envs, max_episode_steps, Box(-HIGH, HIGH), Discrete(2))

    def start(self, random: Stream, count: int) -> State:
        x, speed, theta, omega = random.uniform(4, count).double() * 0.1 - 0.05
        return {"x": x, "speed": speed, "theta": theta, "omega": omega}

    def move(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        x, speed, theta, omega = state["x"], state["speed"], state["theta"], state["omega"]
        force = FORCE * (2 * action - 1)
        sin, cos = torch.sin(theta), torch.cos(theta)
        push = (force + POLE_MASS * LENGTH * omega**2 * sin) / TOTAL_MASS
        inertia = LENGTH * (4.0 / 3.0 - POLE_MASS * cos**2 / TOTAL_MASS)
        omega_dot = (GRAVITY * sin - cos * push) / inertia
        speed_dot = push - POLE_MASS * LENGTH * omega_dot * cos / TOTAL_MASS
        moved = {
            "x": x + TAU * speed,
            "speed": speed + TAU * speed_dot,
            "theta": theta + TAU * omega,
            "omega": omega + TAU * omega_dot,
        }
        fallen = (moved["x"].abs() > MAX_X) | (moved["theta"].abs() > MAX_THETA)
        return moved, torch.ones_like(x, dtype=torch.float32), fallen

    def observe(self, state: State) -> Tensor:
        return torch.stack([state["x"], state["speed"], state["theta"], state["omega"]], -1).float()
