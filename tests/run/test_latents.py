"""The callback `latents` shows reconstructions and traversals of image observations."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

import rlrun
from rlrun.callbacks.latents import tiled, traversals
from rlrun.errors import RunError
from rlrun.networks.inputs import FlattenInputs, random_rows

WORDS = [
    "algo=sac", "env=PointMass", "preset=none", "env.num_envs=2", "total_steps=40", "trainer.eval_every=20",
    "trainer.eval_episodes=1", "trainer.eval_max_steps=5", "network.hidden=[8]", "algo.loop.warmup_steps=20",
    "algo.loop.batch_size=8", "trainer.engine=eager", "logger=[]", "algo.representation=encoding",
    "algo.representation.model.network=linear", "callbacks=[latents]",
]  # fmt: skip


@pytest.mark.parametrize("model", ["vae", "discrete_vae"])
def test_pictures_of_latent_states_are_stored_after_evaluations(model: str, tmp_path: Path) -> None:
    words = [*WORDS, "env.kwargs.pixels=16", f"algo.representation.model={model}", f"run_dir={tmp_path / 'run'}"]
    rlrun.train(*words)
    found = [str(path.relative_to(tmp_path)) for path in (tmp_path / "run/media").rglob("*.png")]
    assert sum("reconstructions" in path for path in found) == sum("traversals" in path for path in found) == 2


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("algo.representation=encoding", "latents: needs observations that are images"),
        ("algo.representation=null", "latents: needs algo.representation=encoding"),
    ],
)
def test_latents_refuse_runs_without_images_or_model(word: str, fault: str, tmp_path: Path) -> None:
    words = [word for word in WORDS if "representation" not in word]
    with pytest.raises(RunError, match=f"exit code 2: callbacks: {fault}"):
        rlrun.train(*words, word, f"run_dir={tmp_path / 'run'}")


def test_traversals_move_one_number_or_one_variable() -> None:
    moved = traversals(torch.tensor([1.0, 5.0, 9.0]), rows=2, steps=3)
    assert moved.tolist() == [[[-1, 5, 9], [1, 5, 9], [3, 5, 9]], [[1, 3, 9], [1, 5, 9], [1, 7, 9]]]
    chosen = traversals(torch.eye(2), rows=8, steps=3)
    assert chosen.tolist() == [[[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[[1, 0], [1, 0]], [[1, 0], [0, 1]]]]


@pytest.mark.parametrize("shape", [(3, 16, 20), (16, 20, 3), (2, 16, 20, 3), (4, 16, 20)])
def test_tiles_are_the_images_in_rows_and_columns(shape: tuple[int, ...]) -> None:
    space = Box(0, 255, shape, np.uint8)
    obs = random_rows(space, 6)
    picture = tiled(FlattenInputs(space)(obs).unflatten(0, (2, 3)), space)
    assert picture.shape == (32, 60, 3)
    images = np.asarray(obs)
    if shape == (3, 16, 20):
        images = np.moveaxis(images, 1, -1)
    elif shape == (2, 16, 20, 3):
        images = images[:, -1]
    elif shape == (4, 16, 20):
        images = np.repeat(images[:, -1, :, :, None], 3, -1)
    tile = picture[16:, 20:40].astype(int)
    assert np.abs(tile - images[4].astype(int)).max() <= 1
