"""Pendulum: swing a pendulum up and hold it there. Gymnasium's Pendulum-v1."""

import math

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.simulators.torch_env import State, TorchEnv

MASS = 1.0  # kg
LENGTH = 1.0  # m
DT = 0.05  # seconds per step
MAX_SPEED = 8.0  # rad/s
MAX_TORQUE = 2.0  # N m

HIGH = np.array([1.0, 1.0, MAX_SPEED], np.float32)


class TorchPendulum(TorchEnv):
    """The action is a torque of at most 2 N m; the observation is (cos theta, sin theta, angular speed).

    The reward is -(theta^2 + 0.1 omega^2 + 0.001 torque^2), with theta = 0 upright. No episode terminates.
    g: gravity in m/s^2.
    """

    shows_state = True

    def __init__(self, num_envs: int, max_episode_steps: int | None = 200, g: float = 10.0):
        super().__init__(num_envs, max_episode_steps, Box(-HIGH, HIGH), Box(-MAX_TORQUE, MAX_TORQUE, (1,)))
        self.g = g

    def start(self, random: Stream, count: int) -> State:
        theta, omega = random.uniform(2, count).double() * 2.0 - 1.0
        return {"theta": theta * math.pi, "omega": omega}

    def move(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        theta, omega = state["theta"], state["omega"]
        torque = action[:, 0].double().clamp(-MAX_TORQUE, MAX_TORQUE)
        cost = cost_of(theta, omega, torque)
        omega_dot = 3 * self.g / (2 * LENGTH) * torch.sin(theta) + 3 / (MASS * LENGTH**2) * torque
        omega = (omega + omega_dot * DT).clamp(-MAX_SPEED, MAX_SPEED)
        return {"theta": theta + omega * DT, "omega": omega}, -cost, torch.zeros_like(theta, dtype=torch.bool)

    def observe(self, state: State) -> Tensor:
        theta = state["theta"]
        return torch.stack([torch.cos(theta), torch.sin(theta), state["omega"]], -1).float()

    def infer(self, obs: Tensor) -> State:
        cos, sin, omega = obs.double().unbind(-1)
        return {"theta": torch.atan2(sin, cos), "omega": omega}

    def reward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Returns the rewards [num_envs], which depend on the state before the action."""
        state = self.infer(obs)
        torque = action[:, 0].double().clamp(-MAX_TORQUE, MAX_TORQUE)
        return -cost_of(state["theta"], state["omega"], torque)


def cost_of(theta: Tensor, omega: Tensor, torque: Tensor) -> Tensor:
    """Returns theta^2 + 0.1 omega^2 + 0.001 torque^2, with theta in [-pi, pi)."""
    angle = torch.remainder(theta + math.pi, 2 * math.pi) - math.pi
    return angle**2 + 0.1 * omega**2 + 0.001 * torque**2
