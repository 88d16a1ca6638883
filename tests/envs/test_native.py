"""Vector simulators that Gymnasium registers for an environment: the same task, seeded, saved and restored."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from toys import equal

from rlrun.envs.saving.selftest import EPISODE_END, NATIVE
from rlrun.errors import ConfigError
from rlrun.run.assemble import check_backend

LIMIT = 25  # steps after which poles have fallen in some episodes of random actions, but not in all


@pytest.fixture
def register():
    """`gym.register`, undone after the test."""
    registered = []

    def one(id, *entry_point, **given):
        gym.register(id, *entry_point, **given)
        registered.append(id)

    yield one
    for id in registered:
        del gym.registry[id]


def actions(env, steps, seed=0):
    return list(torch.randint(2, (steps, env.num_envs), generator=torch.Generator().manual_seed(seed)))


def test_native_rows_are_transitions_or_have_weight_0(make):
    env, one = make("CartPole-v1", 6, backend="native", max_episode_steps=LIMIT), CartPoleEnv()
    assert isinstance(env.venv.unwrapped, CartPoleVectorEnv)
    one.reset(seed=0)
    env.reset()
    time, ended, seen = np.zeros(6, int), np.zeros(6, bool), {"fell": 0, "late": 0, "reset": 0}
    for action in actions(env, 120):
        before = env.venv.unwrapped.state.T.copy()
        step, _ = env.step(action)
        for i in range(6):
            if ended[i]:
                seen["reset"] += 1
                assert step["weight"][i] == 0 and step["truncated"][i] and step["following"][i].abs().max() <= 0.05
                time[i], ended[i] = 0, False
                continue
            one.state, one.steps_beyond_terminated = before[i], None
            obs, reward, terminated, _, _ = one.step(int(action[i]))
            time[i] += 1
            assert step["weight"][i] == 1 and step["reward"][i] == reward == 1
            np.testing.assert_allclose(step["next_obs"][i].numpy(), obs, rtol=1e-6)
            assert step["terminated"][i] == terminated and step["truncated"][i] == (time[i] == LIMIT and not terminated)
            ended[i] = terminated or time[i] == LIMIT
            seen["fell"] += terminated
            seen["late"] += bool(step["truncated"][i])
    assert min(seen.values()) > 3


def test_native_episode_lengths_exclude_reset_steps(make):
    env = make("CartPole-v1", 6, backend="native", max_episode_steps=LIMIT)
    env.reset()
    episodes = [episode for action in actions(env, 200) for episode in env.step(action)[1].episodes]
    assert len(episodes) > 20 and all(episode.returned == episode.length for episode in episodes)  # one for each step
    assert max(episode.length for episode in episodes) == LIMIT


def test_equal_seeds_equal_rows_other_seeds_other_rows(make):
    one, two, other = (make("CartPole-v1", 3, seed, backend="native") for seed in (1, 1, 2))
    first = one.reset()
    assert torch.equal(first, two.reset()) and not torch.equal(first, other.reset())
    assert len(first.unique(dim=0)) == 3  # no two environments alike
    assert all(equal(one.step(action), two.step(action)) for action in actions(one, 60))
    assert repr(one.get_extra_state()) == repr(two.get_extra_state())  # nothing else differs
    assert not torch.equal(one.reset(), first) and torch.equal(one.reset(np.random.SeedSequence(1)), first)


def test_native_simulator_resumes_bit_for_bit_from_any_step(make):
    env = make("CartPole-v1", 3, backend="native", max_episode_steps=LIMIT)
    assert env.method == NATIVE and env.exactness == "exact"
    env.reset()
    taken = actions(env, 90)
    trees, steps = [], []
    for action in taken:
        trees.append(env.get_extra_state())
        steps.append(env.step(action))
    moments = [0, *(t + 1 for t, (step, _) in enumerate(steps[:60]) if (step["terminated"] | step["truncated"]).any())]
    assert len(moments) > 6  # between an end and its reset, among others
    for moment in moments:
        other = make("CartPole-v1", 3, seed=9, backend="native", max_episode_steps=LIMIT)
        other.set_extra_state(trees[moment])
        assert all(equal(other.step(a), s) for a, s in zip(taken[moment:], steps[moment:], strict=True))


def test_native_simulator_state_can_be_saved_without_side_effects(make):
    one, two = make("CartPole-v1", 3, backend="native"), make("CartPole-v1", 3, backend="native")
    one.reset(), two.reset()
    for action in actions(one, 60):
        one.get_extra_state()
        assert equal(one.step(action), two.step(action))


class Opaque(gym.vector.VectorEnv):
    """Observes draws from a foreign generator."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    generator = np.random.default_rng(0)

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        return self.generator.random((self.num_envs, 1), np.float32), {}

    def step(self, actions):
        no = np.zeros(self.num_envs, bool)
        return self.generator.random((self.num_envs, 1), np.float32), np.ones(self.num_envs), no, no, {}


def test_native_simulator_without_state_ends_episodes_at_a_restore(make, register):
    register("test/Opaque-v0", vector_entry_point=Opaque)
    env, other = make("test/Opaque-v0", 2), make("test/Opaque-v0", 2)
    assert env.method == EPISODE_END
    assert env.exactness.endswith("end at a restore: it holds state that cannot be saved")
    env.reset()
    last = env.step(torch.zeros(2, dtype=torch.long))[0]["following"]
    other.set_extra_state(env.get_extra_state())
    cut, _ = other.step(torch.zeros(2, dtype=torch.long))
    assert cut["weight"].tolist() == [0, 0] and cut["truncated"].all() and torch.equal(cut["next_obs"], last)


class Limited(Opaque):
    """Takes a time limit, although none is registered with its id."""

    def __init__(self, num_envs, max_episode_steps=None):
        super().__init__(num_envs)
        self.limit = max_episode_steps


def test_a_vector_env_gets_the_time_limit_if_it_has_the_argument(make, register):
    register("test/Limited-v0", vector_entry_point=Limited)
    for given in ({"max_episode_steps": 7}, {"wrappers": {"time_limit": {"max_steps": 7}}}):
        assert make("test/Limited-v0", 2, selftest="off", **given).venv.unwrapped.limit == 7


def test_max_episode_steps_is_refused_by_vector_envs_without_time_limit(make, register):
    register("test/Opaque-v0", vector_entry_point=Opaque)
    with pytest.raises(ConfigError, match="its vector env has no time limit that env"):
        make("test/Opaque-v0", 2, selftest="off", max_episode_steps=7)


TOGETHER = "CartPole-v1 steps all its environments at once, and does not support"


@pytest.mark.parametrize(
    ("id", "given", "line"),
    [
        ("Hopper-v5", {}, "env.backend=native: Hopper-v5 has no vector env of its own"),
        ("CartPole-v1", {"wrappers": {"flatten": {}}}, f"env.wrappers: {TOGETHER} wrappers"),
        ("CartPole-v1", {"instance_seed": 0}, f"env.instance_seed: {TOGETHER} instance_seed"),
        ("CartPole-v1", {"on_failure": "restart"}, f"env.on_failure=restart: {TOGETHER} on_failure=restart"),
        ("CartPole-v1", {"index_kwarg": "sutton_barto_reward"}, f"env.index_kwarg: {TOGETHER} index_kwarg"),
        ("CartPole-v1", {"task_kwargs": {"length": [0.5, 1.0]}}, f"env.task_kwargs: {TOGETHER} task_kwargs"),
        ("CartPole-v1", {"kwargs": {"gravity": 1.0}}, "CartPole-v1 cannot be made (CartPoleVectorEnv.__init__() got"),
    ],
)
def test_native_backend_refuses_unsupported_keys(id, given, line, make):
    with pytest.raises(ConfigError) as refused:
        make(id, 2, backend="native", **given)
    assert line in str(refused.value) and "\n" not in str(refused.value)


def test_native_backend_refuses_other_spaces_than_the_single_environment(make, register):
    register("test/Other-v0", CartPoleEnv, vector_entry_point=Opaque)
    with pytest.raises(ConfigError, match=r"observations of test/Other-v0 are Box\(1,\) of float32 in the vector env"):
        make("test/Other-v0", 2, backend="native", selftest="off")


@pytest.mark.parametrize(
    ("id", "backend", "possible"),
    [
        ("rlrun/GridMaze-v0", "sync", "torch"),
        ("rlrun/GridMaze-v0", "async", "torch"),
        ("rlrun/GridMaze-v0", "ray", "torch"),
        ("rlrun/BernoulliBandit-v0", "async", "sync"),
    ],
)
def test_backend_with_single_environments_is_refused_if_there_are_none(make, id, backend, possible):
    env = make(id, 2, backend=possible)
    check_backend(possible, env)
    with pytest.raises(ConfigError, match=f"env.backend={backend}: {id} has no single .*; set env.backend={possible}"):
        check_backend(backend, env)
