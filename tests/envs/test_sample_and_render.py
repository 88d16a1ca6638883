"""Random actions of a vector environment, and one image of all its environments."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlrun.core.random import Stream
from rlrun.envs.recording import tiled
from rlrun.errors import ConfigError, RunError


@pytest.mark.parametrize(
    ("id", "backend"), [("CartPole-v1", "sync"), ("CartPole-v1", "native"), ("Pendulum-v1", "sync")]
)
def test_samples_are_valid_actions_from_a_seeded_stream(make, id, backend):
    env = make(id, 3, backend=backend, selftest="off")
    env.reset()
    one, other = Stream(0, "actions"), Stream(1, "actions")
    drawn = torch.stack([env.sample(one) for _ in range(200)])
    assert drawn.shape == (200, *env.sample(one).shape) and len(drawn[0]) == 3
    assert torch.equal(torch.stack([env.sample(Stream(0, "actions"))]), drawn[:1])
    assert not torch.equal(torch.stack([env.sample(other) for _ in range(200)]), drawn)
    env.step(drawn[0])
    if isinstance(env.spec.action, gym.spaces.Discrete):
        assert set(drawn.flatten().tolist()) == {0, 1}
    else:
        assert drawn.min() < -0.95 and drawn.max() > 0.95 and abs(float(drawn.mean())) < 0.1


class Painter(gym.Env):
    """An environment whose image has the number of its task everywhere."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, task: float = 0.0, render_mode: str | None = None):
        self.task, self.render_mode = task, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self):
        if self.render_mode is None:
            return None
        if self.task < 0:
            raise RuntimeError("out of paint")
        if 0 < self.task < 1:
            return np.full((4, 6, 3), self.task)
        return np.full((4, 6, 3), int(self.task), np.uint8)


PAINTER = f"{__name__}:Painter"


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_render_tiles_the_images_of_all_environments(make, backend):
    given = {"kwargs": {"render_mode": "rgb_array"}, "task_kwargs": {"task": [1, 250]}, "selftest": "off"}
    env = make(PAINTER, 5, backend=backend, **given)
    env.reset()
    image = env.render()
    assert image.shape == (2 * 4, 3 * 6, 3) and image.dtype == np.uint8
    cells = image.reshape(2, 4, 3, 6, 3).transpose(0, 2, 1, 3, 4).reshape(6, -1)
    assert (cells == cells[:, :1]).all() and (cells[:5, 0] > 0).all() and len({*cells[:5, 0].tolist()}) > 1
    assert not cells[5].any()


def test_render_tells_how_to_get_images_and_which_environment_failed(make):
    env = make(PAINTER, 2, selftest="off")
    env.reset()
    with pytest.raises(ConfigError, match=r"draws no images; set env\.kwargs\.render_mode=rgb_array$"):
        env.render()
    env = make(PAINTER, 2, selftest="off", kwargs={"render_mode": "rgb_array", "task": -1.0})
    env.reset()
    with pytest.raises(RunError, match=r"#0, .*out of paint"):
        env.render()
    env = make(PAINTER, 2, selftest="off", kwargs={"render_mode": "rgb_array", "task": 0.5})
    env.reset()
    with pytest.raises(ConfigError, match=r"draws not an image, uint8 \[height, width, 3\], but float64 \[4, 6, 3\]$"):
        env.render()


def test_tiled_images_stand_in_a_grid_that_is_as_square_as_possible():
    for count, shape in ((1, (1, 1)), (2, (1, 2)), (3, (2, 2)), (7, (3, 3)), (12, (3, 4))):
        images = [np.full((1, 1, 1), i + 1, np.uint8) for i in range(count)]
        grid = tiled(images)[:, :, 0]
        assert grid.shape == shape and grid.ravel()[:count].tolist() == [*range(1, count + 1)]


def test_tiled_images_of_several_sizes_are_padded():
    grid = tiled([np.full((1, 3, 3), 7, np.uint8), np.full((2, 1, 3), 9, np.uint8)])[:, :, 0]
    assert grid.tolist() == [[7, 7, 7, 9, 0, 0], [0, 0, 0, 9, 0, 0]]
