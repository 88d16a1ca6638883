"""Atari: preprocessing, stacked frames, exact restore."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from toys import equal

from rlrun.envs.making import make as making
from rlrun.envs.saving import state
from rlrun.envs.wrappers.atari import StickyALE
from rlrun.errors import ConfigError

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

PREPROCESSING = {
    "noop_max": 3, "fire_reset": True, "frame_skip": 4, "grayscale": True, "screen_size": 84,
    "terminal_on_life_loss": False,
}  # fmt: skip
PONG = {
    "id": "ALE/Pong-v5",
    "kwargs": {"frameskip": 1, "repeat_action_probability": 0.25},
    "wrappers": {"atari": PREPROCESSING, "frame_stack": {"stack": 4}},
}


def test_frames_are_stacked_and_the_state_is_exact(make):
    env = make(**PONG)
    obs = env.reset()
    assert obs.shape == (1, 4, 84, 84) and obs.dtype == torch.uint8 and env.spec.frame_stack == 4
    assert torch.equal(obs[:, 0], obs[:, 3])
    for _ in range(30):
        step, _ = env.step(torch.tensor([2]))
        assert torch.equal(step["following"][:, :3], obs[:, 1:])
        obs = step["following"]
    assert env.exactness == "exact"
    other = make(**PONG, seed=1)
    other.set_extra_state(env.get_extra_state())
    for t in range(60):  # sticky actions among them
        one, two = env.step(torch.tensor([t % 6]))[0], other.step(torch.tensor([t % 6]))[0]
        assert torch.equal(one["following"], two["following"]) and torch.equal(one["reward"], two["reward"])
    assert torch.equal(env.reset(), other.reset())


def test_the_first_frame_after_a_restore_may_repeat_an_action(config):
    kwargs = {"frameskip": 1, "repeat_action_probability": 0.5}
    one, other = (making.make(config("ALE/Seaquest-v5", kwargs=kwargs)) for _ in range(2))
    assert one.unwrapped.ale.getFloat("repeat_action_probability") == 0.0
    one.reset(seed=0), other.reset(seed=1)
    for moment in range(30):
        for action in (3, 4, 5, 2):  # right, left, down, up
            one.step(action)
        state.restore(other.env, state.save(one.env))
        assert np.array_equal(one.step(moment % 6)[0], other.step(moment % 6)[0]), moment
    tree = one.save()
    tree["native"] = tree["native"]["ale"]  # as it was saved once
    assert one.load(tree, 1.0) == "saved without the action that sticky actions may repeat"


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_atari_sticky_actions_repeat(probability):
    done = []
    ale = SimpleNamespace(act=lambda action, strength: done.append((action, strength)), reset_game=lambda: None)
    core = SimpleNamespace(ale=ale, np_random=np.random.default_rng(0))
    sticky, sent = StickyALE(core, probability), [SimpleNamespace(value=number % 17 + 1) for number in range(4000)]
    for action in sent:
        sticky.act(action, 0.5)
    repeated = np.mean([seen[0] != action.value for seen, action in zip(done, sent, strict=True)])
    assert abs(repeated - probability) < 0.03
    assert probability == 1 or done[-1][1] == 0.5
    sticky.reset_game()
    assert (sticky.action, sticky.strength) == (0, 1.0)


def test_other_environments_refuse_the_wrapper(make):
    with pytest.raises(ConfigError, match=r"env.wrappers.atari is for Atari environments only"):
        make("CartPole-v1", wrappers={"atari": PREPROCESSING})


def test_own_returns_sum_the_frames_that_are_skipped(make):
    limit = {"time_limit": {"max_steps": 100}}
    env = make(PONG["id"], kwargs=PONG["kwargs"], wrappers={"own_reward": {}, "atari": PREPROCESSING} | limit)
    env.reset()
    total = 0.0
    for _ in range(100):
        step, events = env.step(torch.tensor([0]))
        total += float(step["reward"][0])
    assert total < 0 and events.own_returns[0].tolist() == [total]


def test_atari_ram_observations_skip_frames(make):
    kwargs = PONG["kwargs"] | {"obs_type": "ram", "repeat_action_probability": 0.0}
    wrapped = {"atari": PREPROCESSING | {"noop_max": 0, "fire_reset": False}, "frame_stack": {"stack": 2}}
    env, frames = make(PONG["id"], kwargs=kwargs, wrappers=wrapped), make(PONG["id"], kwargs=kwargs)
    obs = env.reset()
    assert obs.shape == (1, 2, 128) and torch.equal(obs[:, 1], frames.reset())
    for _ in range(5):
        seen = [frames.step(torch.tensor([2]))[0]["following"] for _ in range(4)]
        obs = env.step(torch.tensor([2]))[0]["following"]
        assert torch.equal(obs[:, 1], seen[-1])


def play(env, steps):
    """Returns some steps and the episodes that ended in them."""
    seen = []
    for t in range(steps):
        step, events = env.step(torch.full((env.num_envs,), [1, 3, 3, 3][t % 4]))
        seen.append((step, events.episodes))
    return seen


BREAKOUT = {
    "id": "ALE/Breakout-v5",
    "kwargs": {"frameskip": 1, "repeat_action_probability": 0.25},
    "wrappers": {
        "atari": PREPROCESSING | {"frame_skip": [2, 6], "terminal_on_life_loss": True, "grayscale": False},
        "frame_stack": {"stack": 2},
    },
}


def test_atari_lives_are_restored_exactly_in_another_process(make):
    env, other = make(**BREAKOUT), make(**BREAKOUT, backend="async", seed=1)
    env.reset()
    lost = 0
    for _ in range(4):
        other.set_extra_state(env.get_extra_state())
        one, two = play(env, 20), play(other, 20)
        assert equal(one, two)
        lost += sum(int(step["terminated"].sum()) for step, _ in one)
    assert lost >= 2 and env.exactness == "exact"


def test_atari_returns_are_of_whole_games(make):
    env = make(**BREAKOUT, selftest="off")
    env.reset()
    total, length, lives = 0.0, 0, 0
    while True:
        step, events = env.step(torch.tensor([3]))
        total, length, lives = total + float(step["reward"]), length + 1, lives + int(step["terminated"])
        if events.episodes:
            break
    assert events.episodes[0][:2] == (total, length) and lives == 5


@pytest.mark.parametrize(("fire_reset", "is_served"), [(False, False), (True, True)])
def test_breakout_serves_no_ball_without_fire(make, fire_reset, is_served):
    wrappers = {"atari": PREPROCESSING | {"fire_reset": fire_reset}}
    env = make("ALE/Breakout-v5", kwargs=PONG["kwargs"], wrappers=wrappers, selftest="off")
    first = env.reset()
    for t in range(100):
        step, _ = env.step(torch.tensor([2 + t // 10 % 2]))  # right and left
    is_score_changed = not torch.equal(first[:, :10], step["following"][:, :10])  # these rows show points and lives
    assert is_score_changed == is_served
