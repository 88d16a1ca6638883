"""Agents act in [-1, 1] and count actions from 0; environments receive their own units."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlrun.envs.making import make as making
from rlrun.envs.stepping.actions import Actions, conversion
from rlrun.envs.stepping.pool import SyncPool
from rlrun.envs.stepping.slot import EnvSlot
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError


class Echo(gym.Env):
    """Returns the received action as the observation."""

    def __init__(self, space):
        self.action_space = space
        self.observation_space = spaces.Box(-np.inf, np.inf, (max(1, int(np.prod(space.shape))),))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return np.asarray(action, np.float32).reshape(-1), 0.0, False, False, {}


def echo(space, num_envs=1):
    venv = SyncVectorEnv([lambda: Echo(space)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    env = VectorEnv(venv, np.random.SeedSequence(0))
    env.reset()
    return env


def test_bounded_actions_are_clipped_and_stretched():
    env = echo(spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)), 2)
    assert env.spec.action == spaces.Box(-1.0, 1.0, (2,), np.float32)
    step, _ = env.step(torch.tensor([[0.5, -1.0], [-3.0, 0.2]]))
    assert step["following"].tolist() == [[1.0, 0.0], [-2.0, 6.0]]  # -2 + 4 * 0.75, 0; clipped to -1, 10 * 0.6
    torch.testing.assert_close(step["executed"], torch.tensor([[0.5, -1.0], [-1.0, 0.2]]))


def test_the_ends_stay_inside_the_bounds():
    low, high = np.array([-0.1, 0.3], np.float32), np.array([0.7, 0.9], np.float32)
    env = echo(spaces.Box(low, high))
    assert env.step(torch.tensor([[1.0, 1.0]]))[0]["following"].tolist() == [high.tolist()]
    assert env.step(torch.tensor([[-1.0, -1.0]]))[0]["following"].tolist() == [low.tolist()]


def test_unbounded_actions_pass_through():
    env = echo(spaces.Box(-np.inf, np.inf, (1,), np.float64))
    assert env.step(torch.tensor([[37.5]]))[0]["following"].tolist() == [[37.5]]
    assert env.spec.action.high.tolist() == [np.inf]


def test_discrete_actions_count_from_zero():
    env = echo(spaces.Discrete(3, start=5), 2)
    assert env.spec.action == spaces.Discrete(3)
    step, _ = env.step(torch.tensor([0, 2]))
    assert step["following"].tolist() == [[5.0], [7.0]] and step["executed"].tolist() == [0, 2]


def test_multi_discrete_actions_count_from_zero_too():
    env = echo(spaces.MultiDiscrete([3, 4], start=[0, 5]), 2)
    assert env.spec.action == spaces.MultiDiscrete([3, 4])
    assert env.step(torch.tensor([[2, 3], [0, 1]]))[0]["following"].tolist() == [[2, 8], [0, 6]]


@pytest.mark.parametrize(
    ("space", "seen", "action", "native"),
    [
        (spaces.MultiDiscrete([[2], [3]]), spaces.MultiDiscrete([2, 3]), [1, 2], [1, 2]),
        (spaces.MultiBinary((2, 2)), spaces.MultiBinary(4), [0, 1, 1, 0], [0, 1, 1, 0]),
        (spaces.Box(0.0, 4.0, (2, 1)), spaces.Box(-1.0, 1.0, (2,)), [0.5, -2.0], [3, 0]),
        (spaces.Box(0, 4, (2,), np.int32), spaces.Box(-1.0, 1.0, (2,)), [0.2, 0.9], [2, 4]),  # 2.4 and 3.8, rounded
    ],
    ids=str,
)
def test_actions_are_vectors_whatever_shape_the_environment_wants(space, seen, action, native):
    env = echo(space)
    assert env.spec.action == seen
    assert env.step(torch.tensor([action]))[0]["following"].tolist() == [native]


def test_a_single_number_is_a_vector_of_one():
    actions = Actions(spaces.Box(0.0, 4.0, ()))
    assert actions.space == spaces.Box(-1.0, 1.0, (1,))
    assert actions.to_native(np.array([[0.5], [-1.0]], np.float32)).tolist() == [3.0, 0.0]


def test_an_action_with_one_bound_is_kept_inside_it():
    env = echo(spaces.Box(np.array([0.0, -np.inf], np.float32), np.array([np.inf, 3.0], np.float32)))
    assert env.step(torch.tensor([[-5.0, 7.0]]))[0]["following"].tolist() == [[0, 3]]
    assert env.step(torch.tensor([[50.0, -70.0]]))[0]["following"].tolist() == [[50, -70]]


def test_the_action_of_a_step_is_a_copy():
    env, action = echo(spaces.Discrete(3)), torch.tensor([1])
    step, _ = env.step(action)
    action.zero_()
    assert step["executed"].tolist() == [1]


def test_environment_that_writes_to_its_action_does_not_change_that_of_the_step():
    class Zeroing(Echo):
        def step(self, action):
            action *= 0
            return super().step(action)

    slots = [lambda: EnvSlot(lambda: Zeroing(spaces.Box(-1, 1, (2,))), 0)]
    env = VectorEnv(SyncPool(slots), np.random.SeedSequence(0))
    env.reset()
    assert env.step(torch.ones(1, 2))[0]["executed"].tolist() == [[1, 1]]


def test_unknown_action_spaces_are_refused():
    words = spaces.Tuple([spaces.Discrete(2), spaces.Text(5)])
    for space in (words, spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Discrete(2), None)):
        with pytest.raises(
            ConfigError, match="have no fixed shape; wrap the environment so that its actions are a Box"
        ):
            conversion(space)


def test_rescaled_actions_have_the_given_bounds_and_reach_those_of_the_environment(make, config):
    env = making.make(config("Pendulum-v1", wrappers={"rescale_action": {"low": 0.0, "high": 10.0}}))
    assert (env.action_space.low, env.action_space.high) == (0.0, 10.0)
    torques = []
    for action in (0.0, 5.0, 10.0):
        env.reset(seed=0)
        env.step(np.array([action], np.float32))
        torques.append(float(env.unwrapped.last_u))
    assert torques == [-2.0, 0.0, 2.0]
    agents = make("Pendulum-v1", wrappers={"rescale_action": {"low": 0.0, "high": 10.0}}, selftest="off")
    assert agents.actions.to_native(np.array([[-1.0], [0.5]], np.float32)).tolist() == [[0.0], [7.5]]


@pytest.mark.parametrize(
    ("id", "bounds", "line"),
    [
        ("CartPole-v1", (0.0, 1.0), "rescale_action needs Box actions with finite bounds, got Discrete(2)"),
        ("Pendulum-v1", (1.0, 1.0), "rescale_action: low=1.0 must be below high=1.0"),
    ],
)
def test_action_rescaling_refuses_what_has_no_range(make, id, bounds, line):
    with pytest.raises(ConfigError) as refused:
        make(id, wrappers={"rescale_action": dict(zip(("low", "high"), bounds, strict=True))})
    assert line in str(refused.value)


def test_an_action_entry_with_equal_bounds_is_zero_for_the_agent():
    actions = Actions(spaces.Box(np.array([-2.0, 3.0], np.float32), np.array([2.0, 3.0], np.float32)))
    agent = np.array([[0.5, 0.7], [-1.0, 0.0]], np.float32)
    native = actions.to_native(agent)
    assert native.tolist() == [[1.0, 3.0], [-2.0, 3.0]]
    assert actions.from_native(native).tolist() == [[0.5, 0.0], [-1.0, 0.0]]
    assert abs(actions.from_native(np.array([[0.0, 3.1]]))[0, 1]) > 1  # no such action
    whole = Actions(spaces.Box(4, 4, (1,), np.uint8))
    assert whole.from_native(np.array([[4]], np.uint8)).tolist() == [[0.0]]


def test_action_bounds_whose_difference_overflows_are_finite():
    most = np.finfo(np.float64).max
    actions = Actions(spaces.Box(-most, most, (1,), np.float64))
    assert actions.to_native(np.array([[0.0], [1.0]])).tolist() == [[0.0], [most]]
