"""The dynamics that value iteration uses agree with the environments."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlrun.cli import main
from rlrun.envs.builtin.maze import DynaMaze
from rlrun.envs.making.dynamics import dynamics
from rlrun.envs.wrappers.wrapper import Discretize
from rlrun.settings import parse


def test_maze_steps_match_its_published_dynamics():
    env = DynaMaze()
    transition, reward = dynamics(env.P)
    env.action_space.seed(0)
    state, _ = env.reset(seed=0)
    for _ in range(5000):
        action = env.action_space.sample()
        after, gain, terminated, _, _ = env.step(action)
        assert reward[state, action] == gain == float(terminated)
        assert transition[state, action].nonzero().flatten().tolist() == ([] if terminated else [after])
        state = env.reset()[0] if terminated else after


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ("FrozenLake", "optimal return: 0.74419 (within 100 steps)"),
        ("CliffWalking", "optimal return: -13"),
        ("DynaMaze", "optimal return: 1 (within 2000 steps)"),
    ],
)
def test_show_prints_the_optimal_return(env, line, capsys):
    assert main(["show", f"env={env}", "optimal=true"]) == 0
    assert capsys.readouterr().out.splitlines() == [line]


def test_an_environment_without_written_dynamics_says_so(capsys):
    assert main(["show", "env=CartPole", "optimal=true"]) == 2
    assert "has no table of its dynamics" in capsys.readouterr().err


class Still(gym.Env):
    observation_space = Box(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), dtype=np.float64)
    action_space = Discrete(2)


def discretize(env, **settings):
    return Discretize(parse(Discretize.Config, {"low": None, "high": None, **settings}, "discretize"), env)


def test_discretize_cuts_a_box_into_equal_bins():
    env = discretize(Still(), bins=4)
    assert env.observation_space == Discrete(16)
    cells = {(-1.0, 0.0): 0, (-0.51, 0.0): 0, (-0.49, 0.0): 1, (1.0, 0.0): 3, (9.0, -9.0): 3, (-1.0, 1.0): 4}
    assert {obs: env.observation(np.array(obs)) for obs in cells} == cells


def test_discretize_needs_bounds():
    with pytest.raises(ValueError, match="give low and high"):
        discretize(gym.make("CartPole-v1"), bins=4)
    with pytest.raises(ValueError, match="one number for each of 2"):
        discretize(Still(), bins=4, low=[0.0], high=[1.0])
