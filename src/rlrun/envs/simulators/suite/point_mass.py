"""PointMass: push a mass in the plane to a goal and stop there. There are only environments in torch."""

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.simulators.torch_env import State, TorchEnv

DT = 0.1  # seconds per step


class TorchPointMass(TorchEnv):
    """A double integrator: the action, a force in [-1, 1]^2, is the acceleration of the point in m/s^2.

    An episode begins at rest; position and goal are uniform in the square [-1, 1]^2. The reward is minus the distance
    to the goal after the step, in m. The observation holds position, velocity and goal, two numbers each. No episode
    terminates.
    """

    shows_state = True

    def __init__(self, num_envs: int, max_episode_steps: int | None = 100):
        super().__init__(num_envs, max_episode_steps, Box(-np.inf, np.inf, (6,)), Box(-1.0, 1.0, (2,)))

    def start(self, random: Stream, count: int) -> State:
        place, goal = random.uniform(2, count, 2) * 2.0 - 1.0
        return {"place": place, "velocity": torch.zeros_like(place), "goal": goal}

    def move(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        velocity = state["velocity"] + DT * action
        place = state["place"] + DT * velocity
        distance = torch.linalg.vector_norm(place - state["goal"], dim=-1)
        moved = {"place": place, "velocity": velocity, "goal": state["goal"]}
        return moved, -distance, torch.zeros_like(distance, dtype=torch.bool)

    def observe(self, state: State) -> Tensor:
        return torch.cat([state["place"], state["velocity"], state["goal"]], -1)

    def infer(self, obs: Tensor) -> State:
        place, velocity, goal = obs.split(2, -1)
        return {"place": place, "velocity": velocity, "goal": goal}

    def reward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Returns the rewards [num_envs], which depend on the state after the action."""
        state = self.infer(next_obs)
        return -torch.linalg.vector_norm(state["place"] - state["goal"], dim=-1)
