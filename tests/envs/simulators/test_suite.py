"""Environments in torch have the transitions of the single environments, those of Gymnasium and our own."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

import rlrun.envs.builtin  # noqa: F401 (registers its ids)
from rlrun.core.random import Stream
from rlrun.envs.simulators.suite.grid_maze import MOVES, TorchGridMaze
from rlrun.envs.simulators.suite.point_mass import TorchPointMass
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.nested import leaves

Make = Callable[..., VectorEnv]
Row = dict[str, Any]  # state of one environment in torch, in NumPy

NUM_ENVS, STEPS = 32, 90


def set_cart_pole(env: Any, row: Row) -> None:
    env.state = np.array([row["x"], row["speed"], row["theta"], row["omega"]])
    env.steps_beyond_terminated = None


def set_pendulum(env: Any, row: Row) -> None:
    env.state = np.array([row["theta"], row["omega"]])


def set_bit_flip(env: Any, row: Row) -> None:
    places = np.arange(env.num_bits)
    env.state, env.goal = (row["bits"] >> places & 1).astype(np.int8), (row["goal"] >> places & 1).astype(np.int8)


def set_deep_sea(env: Any, row: Row) -> None:
    env.row, env.column = int(row["row"]), int(row["column"])


def set_recall(env: Any, row: Row) -> None:
    env.sign, env.t = float(row["sign"]), int(row["time"])


def set_table(env: Any, row: Row) -> None:
    env.state = int(row["state"])


def set_point_mass(env: Any, row: Row) -> None:
    env.state = row


# id, arguments, how a single environment is set to a state
SINGLE = [
    ("CartPole-v1", {}, set_cart_pole),
    ("Pendulum-v1", {}, set_pendulum),
    ("Pendulum-v1", {"g": 9.81}, set_pendulum),
    ("rlrun/BitFlip-v0", {"bits": 4}, set_bit_flip),
    ("rlrun/DeepSea-v0", {"size": 6, "instance_seed": 3}, set_deep_sea),
    ("rlrun/ProbeRecall-v0", {"length": 3}, set_recall),
    ("rlrun/KeyDoor-v0", {"size": 2}, set_table),
    ("rlrun/DynaMaze-v0", {}, set_table),
    ("rlrun/PointMass-v0", {}, set_point_mass),
    ("rlrun/PointMass-v0", {"pixels": 16}, set_point_mass),
]


def rows_of(state: dict[str, Tensor]) -> list[Row]:
    return [{name: value[i].numpy() for name, value in state.items()} for i in range(NUM_ENVS)]


def assert_close(batch: Any, index: int, single: Any) -> None:
    """Compares an observation of a batch with that of a single environment."""
    if isinstance(batch, dict):
        assert batch.keys() == single.keys()
        for key in batch:
            assert_close(batch[key], index, single[key])
    else:
        np.testing.assert_allclose(batch[index].numpy(), single, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("id", "kwargs", "put"), SINGLE, ids=[f"{id}{kwargs or ''}" for id, kwargs, _ in SINGLE])
def test_torch_transitions_equal_those_of_single_environments(id: str, kwargs: Row, put: Any, make_env: Make) -> None:
    env: Any = make_env(id, NUM_ENVS, backend="torch", kwargs=kwargs)
    single: Any = gym.make(id, max_episode_steps=10**6, disable_env_checker=True, **kwargs).unwrapped
    single.reset(seed=0)
    random, ends = Stream(0, "actions"), 0
    env.reset()
    for _ in range(STEPS):
        before, lengths = rows_of(env.simulator.state), env.lengths.tolist()
        step, _ = env.step(env.sample(random))
        native = env.units.to_native(step["executed"]).numpy()
        for i, row in enumerate(before):
            put(single, row)
            single.num_steps = lengths[i]
            obs, reward, terminated, truncated, _ = single.step(native[i])
            assert_close(step["next_obs"], i, obs)
            assert step["reward"][i].item() == pytest.approx(reward, abs=1e-6)
            assert step["terminated"][i].item() == terminated
            assert step["truncated"][i].item() == truncated
        ends += int(step["terminated"].sum())
    assert ends > 0 or id in ("Pendulum-v1", "rlrun/PointMass-v0")


@pytest.mark.parametrize(("id", "kwargs"), [row[:2] for row in SINGLE if "pixels" not in row[1]], ids=str)
def test_torch_episodes_begin_as_those_of_single_environments(id: str, kwargs: Row, make_env: Make) -> None:
    env, single = make_env(id, 300, backend="torch", kwargs=kwargs), make_env(id, 300, kwargs=kwargs)
    for one, other in zip(leaves(env.reset()), leaves(single.reset()), strict=True):
        assert one.dtype == other.dtype
        one, other = one.double(), other.double()
        margin = 6 * other.std() / 300**0.5 + 1e-9
        assert ((one.mean(0) - other.mean(0)).abs() <= margin).all()
        margin = 0.1 * (other.max() - other.min()) + 1e-9
        assert ((one.amin(0) - other.amin(0)).abs() <= margin).all()
        assert ((one.amax(0) - other.amax(0)).abs() <= margin).all()


def test_bit_flip_goal_is_never_the_first_string(make_env: Make) -> None:
    obs = make_env("rlrun/BitFlip-v0", 500, backend="torch", kwargs={"bits": 1}).reset()
    assert torch.equal(obs["desired_goal"], 1 - obs["observation"])
    assert obs["observation"].dtype == torch.int8


def test_point_mass_in_pixels_shows_place_velocity_and_goal() -> None:
    env, plain = TorchPointMass(3, pixels=32), TorchPointMass(3)
    images, numbers = env.reset(0), plain.reset(0)
    for _ in range(5):
        action = torch.rand(3, 2) * 2 - 1
        (images, *_), (numbers, *_) = env.step(action), plain.step(action)
    assert images.dtype == torch.uint8 and images.shape == (3, 3, 32, 32)
    place, velocity, goal = numbers.split(2, -1)
    mass = images.double() / images.double().sum((-1, -2), keepdim=True)
    centres = (torch.arange(32) + 0.5) / 8 - 2
    found = torch.stack([(mass.sum(-2) * centres).sum(-1), (mass.sum(-1) * centres).sum(-1)], -1)
    expected = torch.stack([place, place + velocity, goal], 1).double()
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0)


def test_point_mass_renders_what_an_agent_with_pixels_sees() -> None:
    env = gym.make("rlrun/PointMass-v0", pixels=32, render_mode="rgb_array")
    obs, _ = env.reset(seed=1)
    image: Any = env.render()
    assert image.shape == (256, 256, 3) and image.dtype == np.uint8
    assert np.array_equal(image[::8, ::8].transpose(2, 0, 1), obs) and np.array_equal(
        image[7::8, 7::8], image[::8, ::8]
    )


def test_point_mass_refuses_images_that_are_too_small() -> None:
    with pytest.raises(ValueError, match="pixels=8: must be at least 16"):
        TorchPointMass(3, pixels=8)


def test_point_mass_is_a_double_integrator(make_env: Make) -> None:
    env = make_env("rlrun/PointMass-v0", 4, backend="torch")
    obs = env.reset()
    place, goal = obs[:, :2], obs[:, 4:]
    assert not obs[:, 2:4].any() and obs.abs().max() <= 1
    for _ in range(10):
        step, _ = env.step(torch.tensor([[1.0, -3.0]]).expand(4, 2))  # 3 is clipped to 1
    speed = torch.tensor([1.0, -1.0])  # after 1 s
    travelled = 0.55 * speed  # the sum of 0.1 * (0.1 + 0.2 + ... + 1)
    torch.testing.assert_close(step["following"], torch.cat([place + travelled, speed.expand(4, 2), goal], 1))
    torch.testing.assert_close(step["reward"], -(place + travelled - goal).norm(dim=1))
    for t in range(11, 101):
        step, _ = env.step(torch.zeros(4, 2))
        assert step["truncated"].tolist() == [t == 100] * 4 and not step["terminated"].any()


def test_grid_mazes_have_one_path_between_any_two_cells() -> None:
    env = TorchGridMaze(1, size=4, mazes=20, instance_seed=7)
    for moves in env.tables["next"]:
        passages = {(cell, int(to)) for cell in range(16) for to in moves[cell] if to != cell}
        assert len(passages) == 2 * 15 and {(to, cell) for cell, to in passages} == passages
        reached = {0}
        while grown := {to for cell, to in passages if cell in reached} - reached:
            reached |= grown
        assert len(reached) == 16, "with 15 passages this is a tree"
    same = TorchGridMaze(1, size=4, mazes=20, instance_seed=7)
    other = TorchGridMaze(1, size=4, mazes=20, instance_seed=8)
    assert torch.equal(env.tables["next"], same.tables["next"])
    assert not torch.equal(env.tables["next"], other.tables["next"])


def test_grid_maze_observation_shows_agent_goal_and_passages(make_env: Make) -> None:
    env = make_env("rlrun/GridMaze-v0", 64, kwargs={"size": 3, "mazes": 5})
    random, obs, found = Stream(0, "actions"), env.reset(), 0
    for _ in range(60):
        action = env.sample(random)
        step, _ = env.step(action)
        for i in range(64):
            agent, goal, right, down = obs[i]
            row, column = agent.nonzero()[0].tolist()
            open_ = [row > 0 and down[row - 1, column], right[row, column], down[row, column],
                     column > 0 and right[row, column - 1]]  # fmt: skip
            if open_[action[i]]:
                row, column = row + MOVES[action[i]][0], column + MOVES[action[i]][1]
            assert step["next_obs"][i, 0].nonzero().tolist() == [[row, column]]
            won = bool(goal[row, column])
            assert (step["reward"][i].item(), step["terminated"][i].item()) == (won, won)
            found += won
        assert torch.equal(step["next_obs"][:, 1:], obs[:, 1:])
        assert not (step["following"][:, 0] * step["following"][:, 1]).any(), "no episode begins at its goal"
        obs = step["following"]
    assert found > 64
