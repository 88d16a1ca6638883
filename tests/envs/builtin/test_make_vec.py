"""`gymnasium.make_vec` makes every vector env that rlrun registers."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import rlrun.envs.builtin  # noqa: F401 (registers the ids)

IDS = [id for id, spec in gym.registry.items() if id.startswith("rlrun/") and spec.vector_entry_point]
TABLE = {"path": str(Path(__file__).parents[2] / "three_classes.csv"), "label": "class"}
NEEDED = {"rlrun/DatasetBandit-v0": TABLE}
SMALLER = 3


def make(id: str, num_envs: int = SMALLER, **arguments: Any) -> Any:
    return gym.make_vec(id, num_envs, vectorization_mode="vector_entry_point", **(NEEDED.get(id, {}) | arguments))


@pytest.mark.parametrize("id", [id for id in IDS if id != "rlrun/MushroomBandit-v0"])  # its table must be downloaded
def test_make_vec_makes_every_vector_env(id: str) -> None:
    env = make(id)
    assert env.spec.id == id and isinstance(env.metadata["autoreset_mode"], AutoresetMode)
    obs, infos = env.reset(seed=1)
    assert infos == {} or isinstance(infos, dict)
    assert env.observation_space.contains(obs)
    env.action_space.seed(0)
    for _ in range(5):
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(obs)
        assert reward.shape == terminated.shape == truncated.shape == (SMALLER,)
        assert terminated.dtype == truncated.dtype == bool
    env.close()


@pytest.mark.parametrize("id", ["rlrun/GridMaze-v0", "rlrun/PointMass-v0"])
def test_make_vec_of_an_env_in_torch_is_seeded_and_gives_last_observations(id: str) -> None:
    one, same, other = (make(id, max_episode_steps=4) for _ in range(3))
    starts = [env.reset(seed=seed)[0] for env, seed in ((one, 1), (same, 1), (other, 2))]
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    one.action_space.seed(0)
    for step in range(1, 9):
        action = one.action_space.sample()
        (obs, _, _, truncated, infos), (again, *_) = one.step(action), same.step(action)
        assert np.array_equal(obs, again)
        if step == 4:
            assert truncated.all() and infos["_final_obs"].all()
            assert infos["final_obs"].shape == obs.shape and not np.array_equal(infos["final_obs"], obs)
