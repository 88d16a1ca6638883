"""EnvPool's environments behind our contract. Most of these tests need the extra `envpool`."""

import sys

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from toys import equal

from rlrun.envs.making.envpool import preprocessing
from rlrun.envs.saving.selftest import EPISODE_END
from rlrun.errors import ConfigError

LIMIT = 25
ATARI = {
    "noop_max": 3, "fire_reset": True, "frame_skip": 4, "grayscale": True, "screen_size": 84,
    "terminal_on_life_loss": False,
}  # fmt: skip


def test_envpool_missing_names_the_extra_to_install(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(
        ConfigError, match=r"^env.backend=envpool: EnvPool is not installed; pip install 'rlrun\[envpool\]'"
    ):
        make("CartPole-v1", backend="envpool")


@pytest.fixture
def pool(make):
    pytest.importorskip("envpool")
    return lambda id, num_envs=3, seed=0, **given: make(id, num_envs, seed, backend="envpool", **given)


def actions(env, steps):
    generator = torch.Generator().manual_seed(0)
    if hasattr(env.spec.action, "n"):
        return list(torch.randint(int(env.spec.action.n), (steps, env.num_envs), generator=generator))
    return list(torch.rand(steps, env.num_envs, *env.spec.action.shape, generator=generator) * 2 - 1)


def test_envpool_rows_are_cartpole_transitions_or_have_weight_0(pool):
    env, one = pool("CartPole-v1", 6, max_episode_steps=LIMIT), CartPoleEnv()
    one.reset(seed=0)
    obs, ended, time = env.reset(), np.zeros(6, bool), np.zeros(6, int)
    seen = {"fell": 0, "late": 0, "reset": 0}
    for action in actions(env, 120):
        step, _ = env.step(action)
        for i in range(6):
            if ended[i]:
                seen["reset"] += 1
                assert step["weight"][i] == 0 and step["truncated"][i] and step["following"][i].abs().max() <= 0.05
                ended[i], time[i] = False, 0
                continue
            one.state, one.steps_beyond_terminated = obs[i].double().numpy(), None
            then, reward, terminated, _, _ = one.step(int(action[i]))
            time[i] += 1
            late = time[i] == LIMIT
            assert step["weight"][i] == 1 and step["reward"][i] == reward == 1
            np.testing.assert_allclose(step["next_obs"][i].numpy(), then, atol=1e-5)
            assert step["truncated"][i] == late and step["terminated"][i] == (terminated and not late)
            ended[i] = terminated or late
            seen["fell"] += terminated
            seen["late"] += late
        obs = step["following"]
    assert min(seen.values()) > 3


def test_envpool_seeds_determine_each_environment(pool):
    one, two, other = pool("HalfCheetah-v5"), pool("HalfCheetah-v5"), pool("HalfCheetah-v5", seed=1)
    first = one.reset()
    assert torch.equal(first, two.reset()) and not torch.equal(first, other.reset())
    assert first.dtype == torch.float32 and first.shape == (3, 17) and len(first.unique(dim=0)) == 3
    assert all(equal(one.step(action), two.step(action)) for action in actions(one, 30))
    assert not torch.equal(one.reset(), first) and torch.equal(one.reset(np.random.SeedSequence(0)), first)


def test_envpool_resume_begins_new_episodes_and_reports_it(pool):
    env = pool("CartPole-v1")
    assert env.method == EPISODE_END
    assert (
        env.exactness
        == "not exact, because episodes of CartPole-v1 end at a restore: its vector env cannot save its state"
    )
    env.reset()
    last = env.step(torch.zeros(3, dtype=torch.long))[0]["following"]
    begun = []
    for seed in (1, 2):
        other = pool("CartPole-v1", seed=seed)
        other.set_extra_state(env.get_extra_state())
        cut, _ = other.step(torch.zeros(3, dtype=torch.long))
        assert cut["weight"].tolist() == [0, 0, 0] and cut["truncated"].all() and torch.equal(cut["next_obs"], last)
        begun.append([cut["following"], other.step(torch.ones(3, dtype=torch.long))[0]["following"]])
    assert equal(*begun)  # resumed twice: equal


def test_envpool_atari_preprocessing_follows_the_wrappers(pool, make):
    pytest.importorskip("ale_py")
    given = {
        "wrappers": {
            "atari": ATARI | {"fire_reset": False, "screen_size": 60},
            "frame_stack": {"stack": 3},
        },
        "kwargs": {"frameskip": 1, "repeat_action_probability": 0.0, "full_action_space": True},
        "max_episode_steps": 40,
    }
    env, single = pool("ALE/Pong-v5", 2, **given), make("ALE/Pong-v5", 2, **given)
    assert env.spec == single.spec and env.spec.frame_stack == 3 and env.spec.obs.shape == (3, 60, 60)
    obs = env.reset()
    assert torch.equal(obs, obs[:, :1].expand_as(obs))  # the first frame is repeated, as in replay's stacks
    apart = (obs[:, 0].float().mean((1, 2)) - single.reset()[:, 0].float().mean((1, 2))).abs().max()
    assert apart < 2  # of 255: the same image, resized by other code
    for t, action in enumerate(actions(env, 24)):
        step, _ = env.step(action)
        assert (step["weight"] == 0).all() == (t % 11 == 10) and step["truncated"].all() == (t % 11 in (9, 10))
        same = obs[:, 1:] if t % 11 < 10 else step["following"][:, :1].expand_as(obs[:, 1:])
        assert torch.equal(step["following"][:, :-1], same)
        obs = step["following"]


def test_envpool_returns_are_of_whole_atari_games(pool):
    pytest.importorskip("ale_py")
    wrappers = {"atari": ATARI | {"terminal_on_life_loss": True}, "frame_stack": {"stack": 2}}
    env = pool("ALE/Breakout-v5", 1, wrappers=wrappers, kwargs={"frameskip": 1})
    env.reset()
    games, lives, total, length = [], 0, 0.0, 0
    while len(games) < 2:
        step, events = env.step(torch.tensor([3]))  # a paddle in the corner, which loses all balls in the end
        total, length = total + float(step["reward"]), length + int(step["weight"])
        lives += int(step["terminated"])
        for game in events.episodes:
            games.append(game)
            assert (lives, game) == (5, (total, length))
            lives, total, length = 0, 0.0, 0


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"frame_skip": [2, 4]}, "env.wrappers.atari.frame_skip=[2, 4]: must be one number with env.backend=envpool"),
        ({"noop_max": 0}, "env.wrappers.atari.noop_max=0: must be at least 1 with env.backend=envpool"),
        ({"grayscale": False}, "env.wrappers.atari.grayscale=false: must be true with env.backend=envpool"),
    ],
)
def test_envpool_refuses_preprocessing_that_it_lacks(given, line):
    with pytest.raises(ConfigError) as refused:
        preprocessing({"atari": ATARI | given, "frame_stack": {"stack": 4}}, None)
    assert str(refused.value) == line


def test_envpool_counts_the_time_limit_of_atari_in_steps():
    assert preprocessing({"atari": ATARI, "frame_stack": {"stack": 4}}, 10)["max_episode_steps"] == 3


@pytest.mark.parametrize(
    ("id", "given", "line"),
    [
        ("rlrun/Counter-v0", {}, "env.backend=envpool: EnvPool has no Counter-v0"),
        ("CartPole-v1", {"kwargs": {"gravity": 1}}, "env.kwargs={'gravity': 1}: CartPole-v1 cannot be made (Config"),
        ("CartPole-v1", {"wrappers": {"flatten": {}}}, "env.wrappers: CartPole-v1 steps all its environments at once"),
        (
            "Pendulum-v1",
            {"wrappers": {"frame_stack": {"stack": 2}}},
            "Box(3,) of float32 in the vector env, Box(2, 3) of",
        ),
        ("ALE/Pong-v5", {}, "Box(4, 84, 84) of uint8 in the vector env, Box(210, 160, 3) of uint8 in a single env"),
    ],
)
def test_envpool_refuses_unsupported_keys(id, given, line, pool):
    with pytest.raises(ConfigError) as refused:
        pool(id, **given)
    assert line in str(refused.value) and "\n" not in str(refused.value)
