"""PointMass: push a mass in the plane to a goal and stop there. Physics and images are those of its simulator in torch.

This module imports torch, so rlrun.envs.builtin registers it by name.
"""

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from rlrun.envs.simulators.suite.point_mass import DT, TorchPointMass
from rlrun.envs.simulators.torch_env import State
from rlrun.types import Info

SHOWN = 32  # pixels a side of a rendered image, before it is enlarged
ENLARGED = 8


class PointMass(gym.Env):
    """One environment of `TorchPointMass`, which describes it, with random numbers of Gymnasium.

    pixels: pixels a side of images that take the place of numbers.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / DT)}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, pixels: int | None = None, render_mode: str | None = None):
        self.simulator, self.render_mode = TorchPointMass(1, None, pixels), render_mode
        self.observation_space = self.simulator.single_observation_space
        self.action_space = self.simulator.single_action_space
        self.state: dict[str, NDArray[np.float32]] = {}  # of the simulator, without the dimension of environments

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        place, goal = self.np_random.uniform(-1.0, 1.0, (2, 2)).astype(np.float32)
        self.state = {"place": place, "velocity": np.zeros(2, np.float32), "goal": goal}
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, Info]:
        force = torch.as_tensor(action, dtype=torch.float32)
        state, reward, _ = self.simulator.move(self._rows(), force.unsqueeze(0))
        self.state = {name: value[0].numpy() for name, value in state.items()}
        return self._seen(), float(reward[0]), False, False, {}

    def render(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """Returns the image that an agent with pixels sees, enlarged, [height, width, 3]."""
        image = self.simulator.drawn(self._rows(), SHOWN)[0]
        return image.permute(1, 2, 0).numpy().repeat(ENLARGED, 0).repeat(ENLARGED, 1)

    def _rows(self) -> State:
        """Returns the state of the simulator, whose tensors have a dimension for one environment."""
        return {name: torch.from_numpy(value).unsqueeze(0) for name, value in self.state.items()}

    def _seen(self) -> np.ndarray:
        return self.simulator.observe(self._rows())[0].numpy()
