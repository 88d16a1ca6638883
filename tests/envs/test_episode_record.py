"""Environments with hidden state are restored by replaying the episode; if a replay differs, the episode ends."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from probes import Hidden
from saving_methods import saving_methods
from test_env_state import actions, goes_on_exactly
from toys import equal

from rlrun.envs.making import make as making
from rlrun.envs.saving import episode_record
from rlrun.envs.saving.selftest import EPISODE_END, NATIVE, REPLAY
from rlrun.settings import config, register
from rlrun.snapshot import tree as snapshot

ZERO = torch.tensor([0, 0])


class Treacherous(Hidden):
    """Deterministic in its first 200 steps only, which the self-test does not exceed."""

    steps = 0

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        self.steps += 1
        return obs + (self.steps > 200) * np.random.default_rng().random(1, np.float32), reward, False, truncated, info


gym.register("test/Treacherous-v0", Treacherous)


def played(make, id, steps, **values):
    """Returns an environment some steps into its episode, saved by replay."""
    env = make(id, 2, **values)
    env.reset()
    assert env.method == REPLAY
    for _ in range(steps):
        env.step(ZERO)
    return env


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_episode_replay_resumes_exactly(make, backend):
    goes_on_exactly(make, "rlrun/Hidden-v0", backend, REPLAY)


@pytest.mark.parametrize("id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_episode_replay_of_box2d(make, id):
    pytest.importorskip("Box2D")
    goes_on_exactly(make, id, "sync", REPLAY, max_episode_steps=40)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["LunarLander-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3", "CarRacing-v3"])
def test_episode_replay_of_box2d_in_workers(make, id):
    pytest.importorskip("Box2D")
    goes_on_exactly(make, id, "async", REPLAY, max_episode_steps=40)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["LunarLander-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3"])
def test_episode_replay_of_box2d_at_many_steps(make, id):
    """Long episodes, in worlds that were reset before, are saved at 20 steps."""
    pytest.importorskip("Box2D")
    env, other = make(id), make(id, seed=1)
    env.reset()
    assert env.method == REPLAY
    for moment in range(20):
        for action in actions(env, 150 + 31 * moment, seed=moment):
            env.step(action)
        other.set_extra_state(env.get_extra_state())
        assert other.exactness == "exact"
        assert all(equal(env.step(a), other.step(a)) for a in actions(env, 300, seed=100 + moment))


def test_box2d_episodes_begin_in_a_new_world(make, monkeypatch):
    """In a reused world, an episode of Gymnasium's BipedalWalker ends with different bits."""
    pytest.importorskip("Box2D")
    assert saving_methods(["BipedalWalker-v3"])["BipedalWalker-v3"].name == REPLAY
    monkeypatch.setattr(making, "NewWorld", lambda env: env)
    assert saving_methods(["BipedalWalker-v3"])["BipedalWalker-v3"].name == EPISODE_END


def test_episode_replay_through_wrappers_and_a_snapshot(make):
    values = {"wrappers": {"frame_stack": {"stack": 3}}}
    env = played(make, "rlrun/Hidden-v0", 7, **values)
    skeleton, tensors = snapshot.encode({"env": env.get_extra_state()})
    other = make("rlrun/Hidden-v0", 2, seed=5, **values)
    other.set_extra_state(snapshot.decode(skeleton, tensors)["env"])
    assert other.obs.shape == (2, 3, 1)
    assert all(equal(env.step(ZERO), other.step(ZERO)) for _ in range(50))


def test_episode_replay_continues_the_record(make):
    env = played(make, "rlrun/Hidden-v0", 3)
    for seed in (1, 2):
        other = make("rlrun/Hidden-v0", 2, seed=seed)
        other.set_extra_state(env.get_extra_state())
        assert other.exactness == "exact" and equal(env.step(ZERO), other.step(ZERO))
        env = other
    assert all(step["weight"].all() for step, _ in (env.step(ZERO) for _ in range(5)))


def test_episode_replay_uses_a_new_environment(make):
    env, other = played(make, "test/Treacherous-v0", 3), played(make, "test/Treacherous-v0", 250)
    other.set_extra_state(env.get_extra_state())
    assert other.exactness == "exact" and equal(env.step(ZERO), other.step(ZERO))


@register("wrapper", "test_numbered")
class Numbered(gym.Wrapper):
    """Adds 1000 to the observation for every episode that has begun."""

    @config
    class Config:
        pass

    def __init__(self, cfg, env):
        super().__init__(env)
        self.number = 0

    def reset(self, *, seed=None, options=None):
        obs, info = self.env.reset(seed=seed, options=options)
        self.number += 1
        return obs + 1000 * self.number, info


def test_episode_replay_restores_wrapper_state_across_episodes(make):
    goes_on_exactly(make, "rlrun/Hidden-v0", "sync", REPLAY, wrappers={"test_numbered": {}})


def test_episode_without_a_recorded_reset_ends_at_a_restore(make):
    env = make("rlrun/Hidden-v0", 2)
    env.reset()
    env.step(ZERO)
    other = make("rlrun/Hidden-v0", 2, seed=1)
    other.set_extra_state(env.get_extra_state())
    assert "(#0, #1): the beginning of its episode was not recorded" in other.exactness
    assert other.step(ZERO)[0]["weight"].tolist() == [0, 0]
    for _ in range(20):
        env.step(ZERO)  # to the next episodes
    other.set_extra_state(env.get_extra_state())
    assert other.exactness == "exact" and equal(env.step(ZERO), other.step(ZERO))


def test_episode_replay_limits_the_number_of_actions(make, monkeypatch):
    env, other = played(make, "rlrun/Hidden-v0", 0), played(make, "rlrun/Hidden-v0", 0, seed=1)
    monkeypatch.setattr(episode_record, "MAX_BYTES", 64)  # 8 discrete actions, and one that says it is more
    while (lengths := (env.clock.steps - env.clock.begun).tolist())[0] < 9 or lengths[1] > 8:
        env.step(ZERO)
    assert len(env.pool.slots[0].episode.actions) == 72
    other.set_extra_state(env.get_extra_state())
    assert "ended at this restore (#0): its episode has more than 1,000,000 bytes of actions" in other.exactness
    one, cut = env.step(ZERO)[0], other.step(ZERO)[0]
    assert cut["weight"].tolist() == [0, 1] and cut["truncated"].tolist()[0] and not cut["terminated"][0]
    assert cut["reward"].tolist() == [0, 1] and torch.equal(cut["next_obs"][0], one["next_obs"][0] - 1)
    assert torch.equal(cut["following"][1], one["following"][1])
    for _ in range(30):
        one, cut = env.step(ZERO)[0], other.step(ZERO)[0]
        assert torch.equal(cut["next_obs"][1], one["next_obs"][1]) and cut["weight"].all()


def test_episode_length_counts_from_the_new_reset_after_a_restore(make, monkeypatch):
    env = played(make, "rlrun/Hidden-v0", 3)
    monkeypatch.setattr(episode_record, "MAX_BYTES", 8)
    other = make("rlrun/Hidden-v0", 2, seed=1)
    other.set_extra_state(env.get_extra_state())
    start = other.step(ZERO)[0]["following"]
    episodes = [episode for _ in range(20) for episode in other.step(ZERO)[1].episodes]
    first = sorted(20 - int(at) % 20 for at in start.flatten())
    assert [episode[:2] for episode in episodes[:2]] == [(length, length) for length in first]


def test_episode_replay_with_another_result_is_refused(make):
    env = played(make, "test/Treacherous-v0", 250)
    assert env.exactness == "exact"  # according to the self-test
    before, tree = env.obs, env.get_extra_state()
    other = make("test/Treacherous-v0", 2, seed=1)
    other.set_extra_state(tree)
    assert "(#0, #1): the replay of its episode gave different results" in other.exactness
    cut, _ = other.step(ZERO)
    assert cut["weight"].tolist() == [0, 0] and torch.equal(cut["next_obs"], before)


def test_episode_replay_has_a_time_limit(make):
    env = played(make, "rlrun/Hidden-v0", 1)
    other = make("rlrun/Hidden-v0", 2, seed=1)
    other.pool.replay_limit_s = 0
    other.set_extra_state(env.get_extra_state())
    assert "the replay of its episode took longer than 0 s" in other.exactness
    assert make("rlrun/Hidden-v0", backend="async", timeout_s=10.0).pool.replay_limit_s == 5.0


def test_snapshot_between_restore_and_step_keeps_the_refusal(make):
    env = played(make, "rlrun/Hidden-v0", 1)
    middle, other = make("rlrun/Hidden-v0", 2, seed=1), make("rlrun/Hidden-v0", 2, seed=2)
    middle.pool.replay_limit_s = 0
    middle.set_extra_state(env.get_extra_state())
    other.set_extra_state(middle.get_extra_state())
    assert "took longer than 0 s" in other.exactness and other.step(ZERO)[0]["weight"].tolist() == [0, 0]


def test_saving_methods_of_ids():
    found = saving_methods(["CartPole-v1", "rlrun/Hidden-v0", "Missing-v0"])
    assert {id: method.name for id, method in found.items()} == {"CartPole-v1": NATIVE, "rlrun/Hidden-v0": REPLAY}
    assert found["CartPole-v1"].reason == ""
    assert found["rlrun/Hidden-v0"].reason == "it holds state that cannot be saved"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_self_test_finds_nearly_every_environment_exact():
    """Tests every id that can be created on this machine, and samples of Atari."""
    others = {id for id, spec in gym.registry.items() if str(spec.entry_point).startswith(("ale_py", "rlrun"))}
    ids = [id for id in gym.registry if id not in others and not id.startswith("test/")]
    ids += [f"ALE/{game}-v5" for game in ("Breakout", "MontezumaRevenge", "Pong", "Seaquest", "SpaceInvaders")]
    found = saving_methods(ids)
    inexact = [id for id, method in found.items() if method.name == EPISODE_END]
    assert len(found) >= 36 and len(inexact) <= 0.05 * len(found), inexact
