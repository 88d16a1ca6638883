"""PointMass: push a mass in the plane to a goal and stop there."""

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.simulators.torch_env import State, TorchEnv

DT = 0.1  # seconds per step
SIDE = 4.0  # metres that an image shows, from -2 to 2 in x and y
FEWEST = 16  # pixels a side


class TorchPointMass(TorchEnv):
    """A double integrator: the action, a force in [-1, 1]^2, is the acceleration of the point in m/s^2.

    An episode begins at rest; position and goal are uniform in the square [-1, 1]^2. The reward is minus the distance
    to the goal after the step, in m. The observation holds position, velocity and goal, two numbers each. No episode
    terminates.

    pixels: pixels a side of an image that takes the place of these numbers, [3, pixels, pixels]. Its channels show as
    bright spots where the point is, where it will be after a second at its velocity, and where the goal is.
    """

    def __init__(self, num_envs: int, max_episode_steps: int | None = 100, pixels: int | None = None):
        space: Space = Box(-np.inf, np.inf, (6,))
        if pixels is not None:
            if pixels < FEWEST:
                raise ValueError(f"pixels={pixels}: must be at least {FEWEST}")
            space = Box(0, 255, (3, pixels, pixels), np.uint8)
        self.pixels = pixels
        self.shows_state = pixels is None
        super().__init__(num_envs, max_episode_steps, space, Box(-1.0, 1.0, (2,)))

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
        if self.pixels is not None:
            return self.drawn(state, self.pixels)
        return torch.cat([state["place"], state["velocity"], state["goal"]], -1)

    def drawn(self, state: State, pixels: int) -> Tensor:
        """Returns images [num_envs, 3, pixels, pixels] in bytes."""
        after = state["place"] + state["velocity"]
        return spots(torch.stack([state["place"], after, state["goal"]], 1), pixels)

    def infer(self, obs: Tensor) -> State:
        place, velocity, goal = obs.split(2, -1)
        return {"place": place, "velocity": velocity, "goal": goal}

    def reward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Returns the rewards [num_envs], which depend on the state after the action."""
        state = self.infer(next_obs)
        return -torch.linalg.vector_norm(state["place"] - state["goal"], dim=-1)


def spots(places: Tensor, pixels: int) -> Tensor:
    """Returns images [..., pixels, pixels] in bytes with a bright spot at each place (x, y) [..., 2].

    A spot is a Gaussian with a standard deviation of one pixel. Rows go from y = -2 to 2, columns from x = -2 to 2.
    """
    centres = (torch.arange(pixels, device=places.device) + 0.5) * (SIDE / pixels) - SIDE / 2
    distance = (centres - places.unsqueeze(-1)) * (pixels / SIDE)  # in pixels, [..., 2, pixels]
    x, y = torch.exp(-0.5 * distance.square()).unbind(-2)
    return (255 * y.unsqueeze(-1) * x.unsqueeze(-2)).to(torch.uint8)
