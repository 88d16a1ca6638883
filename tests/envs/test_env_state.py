"""Environments saved in mid-episode, restored elsewhere, continue bit for bit, or report that they cannot."""

import random
from collections import deque

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from toys import equal

from rlrun.envs.saving import episode_record
from rlrun.envs.saving.selftest import EPISODE_END, NATIVE
from rlrun.envs.saving.state import MujocoState, NotSavableError, assign, decode, encode
from rlrun.envs.stepping.vector import VectorEnv

MUJOCO = ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5", "Reacher-v5", "Pusher-v5", "Swimmer-v5"]
SMALL = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "FrozenLake-v1", "Taxi-v4", "CliffWalking-v1"]


def actions(env, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if isinstance(env.spec.action, spaces.Discrete):
        return list(torch.randint(int(env.spec.action.n), (steps, env.num_envs), generator=generator))
    return list(torch.rand(steps, env.num_envs, *env.spec.action.shape, generator=generator) * 2 - 1)


def goes_on_exactly(make, id, backend, method=NATIVE, **values):
    """Checks that restored and uninterrupted environments agree over several resets, and in their final states."""
    env = make(id, 2, backend=backend, **values)
    assert env.method == method and env.exactness == "exact"
    env.reset()
    for action in actions(env, 25):
        env.step(action)
    tree = env.get_extra_state()
    other = make(id, 2, seed=99, backend=backend, **values)
    other.set_extra_state(tree)
    assert equal(other.obs, env.obs)
    assert all(equal(env.step(a), other.step(a)) for a in actions(env, 60, seed=1))
    assert repr(env.get_extra_state()) == repr(other.get_extra_state())


@pytest.mark.parametrize("id", MUJOCO)
def test_env_state_of_mujoco_resumes_exactly(make, id):
    goes_on_exactly(make, id, "sync", max_episode_steps=40)


@pytest.mark.parametrize("id", SMALL)
def test_env_state_of_classic_control_and_toy_text_resumes_exactly(make, id):
    goes_on_exactly(make, id, "sync", max_episode_steps=40)


@pytest.mark.parametrize("id", ["Humanoid-v5", "Taxi-v4"])
def test_env_state_of_workers_resumes_exactly(make, id):
    goes_on_exactly(make, id, "async", max_episode_steps=40)


def test_indices_of_a_mujoco_state_are_not_restored(make):
    """MuJoCo follows them without a check, so that those of an untrusted snapshot could make it write anywhere."""
    env = make("HalfCheetah-v5")
    env.reset()
    core = env.pool.slots[0].unwrapped
    state = MujocoState(core)
    names = [name for name in state.names if getattr(core.data, name).dtype.kind != "f"]
    before = [getattr(core.data, name).copy() for name in names]
    tree = state.save()
    tree["arrays"][:] = 0x3F
    state.restore(tree)
    assert "moment_colind" in names and core.data.qvel[0] == np.frombuffer(b"\x3f" * 8)[0]
    assert all(np.array_equal(getattr(core.data, name), value) for name, value in zip(names, before, strict=True))


@pytest.mark.parametrize(
    ("generator", "change"),
    [
        (np.random.MT19937, {"state": {"key": np.zeros(624, np.uint32), "pos": 10**6}}),
        (np.random.MT19937, {"state": {"key": np.zeros(624, np.uint32), "pos": -1}}),
        (np.random.Philox, {"buffer_pos": -1}),
        (np.random.Philox, {"buffer_pos": 5}),
    ],
)
def test_generator_that_would_read_beyond_its_buffer_is_refused(generator, change):
    tag, state = encode(np.random.Generator(generator(0)))
    decode((tag, state))
    with pytest.raises(NotSavableError, match="beyond its buffer"):
        decode((tag, state | change))


def test_from_workers_to_one_process_and_with_a_frame_stack(make):
    values = {"wrappers": {"frame_stack": {"stack": 3}}}
    env, other = make("Pendulum-v1", 2, backend="async", **values), make("Pendulum-v1", 2, seed=5, **values)
    env.reset()
    for action in actions(env, 5):
        env.step(action)
    other.set_extra_state(env.get_extra_state())
    assert env.spec.frame_stack == 3 and env.obs.shape == (2, 3, 3)
    assert all(equal(env.step(a), other.step(a)) for a in actions(env, 220))


def test_env_state_can_be_saved_without_side_effects(make):
    one, other = make("Ant-v5"), make("Ant-v5")
    one.reset(), other.reset()
    for action in actions(one, 30):
        one.get_extra_state()
        assert equal(one.step(action), other.step(action))


def test_env_state_restores_episode_returns_and_lengths(make):
    env, other = make("rlrun/Counter-v0"), make("rlrun/Counter-v0")
    env.reset()
    env.step(torch.tensor([0]))
    other.set_extra_state(env.get_extra_state())
    assert not other.step(torch.tensor([0]))[1].episodes
    assert other.step(torch.tensor([0]))[1].episodes[0][:2] == (6.0, 3)


def test_env_state_restored_before_the_first_reset(make):
    env, other = make("CartPole-v1"), make("CartPole-v1", seed=3)
    other.set_extra_state(env.get_extra_state())
    assert other.obs is None and torch.equal(other.reset(), env.reset())


def test_what_can_be_saved_is_not_recorded(make):
    env = make("CartPole-v1")
    env.reset()
    env.step(torch.tensor([0]))
    assert env.method == NATIVE
    slot = env.pool.slots[0]
    assert slot.episode is None and not slot.recording


class Elsewhere(gym.Env):
    """Draws from a foreign generator, so it can neither be saved nor replayed."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(2)
    generator = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(1, np.float32), {}

    def step(self, action):
        return Elsewhere.generator.random(1, np.float32), 1.0, False, False, {}


def test_env_state_that_cannot_be_saved_ends_the_episode_at_a_restore(make):
    gym.registry.pop("test/Elsewhere-v0", None)
    gym.register("test/Elsewhere-v0", Elsewhere)
    env = make("test/Elsewhere-v0", 2)
    assert env.method == EPISODE_END
    assert env.exactness.startswith("not exact, because episodes of test/Elsewhere-v0 end at a restore: ")
    env.reset()
    before = env.step(torch.tensor([0, 0]))[0]["following"]
    tree = env.get_extra_state()
    rows = []
    for seed in (1, 2):
        other = make("test/Elsewhere-v0", 2, seed=seed)
        other.set_extra_state(tree)
        assert torch.equal(other.obs, before)
        cut, events = other.step(torch.tensor([1, 1]))
        assert cut["weight"].tolist() == [0, 0] and cut["truncated"].all() and not cut["terminated"].any()
        assert torch.equal(cut["next_obs"], before) and not any(events)
        assert other.step(torch.tensor([0, 0]))[0]["weight"].tolist() == [1, 1]
        rows.append(cut["following"])
    assert torch.equal(rows[0], rows[1]) and rows[0][0] != rows[0][1]  # resumed twice: equal


def test_a_state_of_another_model_ends_the_episode_too(make):
    hopper, cheetah = make("Hopper-v5"), make("HalfCheetah-v5")
    hopper.reset()
    cheetah.reset()
    tree = {**hopper.get_extra_state(), "obs": cheetah.get_extra_state()["obs"]}
    for env in (cheetah, make("HalfCheetah-v5", backend="async")):
        env.set_extra_state(tree)
        assert env.step(torch.zeros(1, 6))[0]["weight"].item() == 0 and "or another model" in env.exactness
        assert env.step(torch.zeros(1, 6))[0]["weight"].item() == 1


def test_a_simulator_of_its_own_ends_its_episodes():
    venv = SyncVectorEnv([lambda: gym.make("CartPole-v1")])
    env = VectorEnv(venv, np.random.SeedSequence(0))
    env.reset()
    env.step(torch.tensor([0]))
    env.set_extra_state(env.get_extra_state())
    assert env.method == EPISODE_END and env.step(torch.tensor([0]))[0]["truncated"].item()
    found = [env.step(torch.tensor([0])) for _ in range(20)]
    step, _ = found[0]
    assert step["weight"].item() == 1
    total, length, *_ = next(events.episodes[0] for _, events in found if events.episodes)
    assert total == length < 20
    env.close()


VALUES = [
    None, True, 2**200, 0.1, float("inf"), "text", b"bytes", [1, (2, [3])], {"a": 1, 3: (None,)},
    np.arange(4, dtype=np.int16), np.array(2.5), np.array([[b"S", b"F"]]), np.float64(0.1), np.int64(3),
    deque([np.ones(2), 1], maxlen=5),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_env_state_encoding_round_trips(value):
    back = decode(encode(value))
    assert type(back) is type(value) and repr(back) == repr(value)
    assert getattr(back, "maxlen", None) == getattr(value, "maxlen", None)


@pytest.mark.parametrize("bits", ["PCG64", "MT19937", "SFC64"])
def test_env_state_restores_generators_in_place(bits):
    generator = np.random.Generator(getattr(np.random, bits)(7))
    generator.integers(10, dtype=np.int32)  # leaves half a word behind
    tree, expected = encode(generator), generator.random(3)
    assert np.array_equal(decode(tree).random(3), expected)
    here = np.random.Generator(getattr(np.random, bits)(1))
    assert decode(tree, here) is here and np.array_equal(here.random(3), expected)
    own = random.Random(3)
    tree, expected = encode(own), own.gauss()
    assert decode(tree).gauss() == expected


@pytest.mark.parametrize(
    ("saved", "reason"),
    [
        ({"render_mode": "human"}, "another render_mode"),
        ({"_sutton_barto_reward": True}, "another _sutton_barto_reward"),
        ({"step": 1}, "step is a method"),
        ({"gravity": "9.8"}, "gravity is 9.8, but was saved as '9.8'"),
        ({"gravity": [9.8]}, r"gravity is 9.8, but was saved as \[9.8\]"),
        ({"gravity": encode(np.str_("9.8"))}, "gravity is 9.8, but was saved as .*9.8"),
        ({"observation_space": 5}, "observation_space is Box.* saved as 5"),
        ({"action_space": None}, "action_space is Discrete.* saved as None"),
        ({"_np_random": 5}, "_np_random is Generator.* saved as 5"),
        ({"spec": None}, "spec is no state"),
        ({"metadata": {}}, "metadata is no state"),
        ({"__class__": 5}, "__class__ is no state"),
    ],
)
def test_stored_state_changes_no_argument_of_the_constructor_no_method_and_no_kind(saved, reason):
    env = gym.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    before = dict(vars(env))
    with pytest.raises(NotSavableError, match=reason):
        assign(env, saved)
    assert vars(env) == before
    assign(env, {"gravity": 5.0, "render_mode": None})
    assert env.gravity == 5.0


def test_stored_state_replaces_no_environment_and_no_function():
    env = gym.wrappers.TransformReward(gym.make("CartPole-v1"), abs)
    for saved in ({"env": 5}, {"env": None}, {"func": 5}):
        with pytest.raises(NotSavableError, match="but was saved as"):
            assign(env, saved)
    assert env.env.unwrapped.gravity == 9.8 and env.func is abs


def test_stored_state_sets_what_a_new_environment_does_not_have_yet():
    env = gym.make("CartPole-v1").unwrapped
    assert env.state is None
    assign(env, {"state": ("tuple", [0.0, 1.0, 2.0, 3.0]), "added": 1})
    assert env.state == (0.0, 1.0, 2.0, 3.0) and env.added == 1
    assign(env, {"state": encode(np.zeros(4))})
    assert not env.state.any()


def test_frame_skip_of_a_simulator_is_no_state():
    env = gym.make("HalfCheetah-v5").unwrapped
    with pytest.raises(NotSavableError, match="HalfCheetahEnv was made with another frame_skip"):
        assign(env, {"frame_skip": 10**9})
    env.close()


def test_replay_announces_a_long_episode_and_refuses_more_actions_than_are_recorded(monkeypatch, capsys):
    env = gym.make("CartPole-v1").unwrapped
    obs, _ = env.reset(seed=0)
    actions = np.zeros(3, np.int64)
    for action in actions:
        last, *_ = env.step(action)
    env.reset(seed=0)
    monkeypatch.setattr(episode_record, "QUIET_S", 0.0)
    episode_record.play(
        env, obs, {"actions": np.frombuffer(actions.tobytes(), np.uint8), "obs": episode_record.digest(last)}, np.inf
    )
    assert capsys.readouterr().err == "replaying 3 steps of an episode, to continue from there\n"
    with pytest.raises(NotSavableError, match="more than 1,000,000 bytes of actions"):
        episode_record.play(env, obs, {"actions": np.zeros(2_000_000, np.uint8), "obs": None}, np.inf)
