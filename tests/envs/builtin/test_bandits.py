"""Bandits return the right rewards, report the regret, and are saved exactly."""

import numpy as np
import pytest
import torch

from rlrun.errors import ConfigError

TWO = {"bandits": 2, "arms": 2, "reward_probs": [[0.25, 0.75], [1.0, 0.0]]}


def test_bandit_reward_and_regret_of_an_arm(make_env):
    env = make_env("rlrun/BernoulliBandit-v0", 4000, kwargs=TWO | {"contexts": "own"})
    obs = env.reset()
    assert obs.tolist() == [0, 1] * 2000
    step, events = env.step(torch.zeros(4000, dtype=torch.int64))
    assert step["terminated"].all() and not step["truncated"].any()
    assert abs(step["reward"][::2].mean() - 0.25) < 4 * np.sqrt(0.1875 / 2000) and step["reward"][1::2].eq(1).all()
    assert events.measures["regret"].tolist() == [0.5, 0.0] * 2000
    assert events.measures["best_arm"].tolist() == [False, True] * 2000
    assert [episode.length for episode in events.episodes] == [1] * 4000


def test_gaussian_rewards_have_the_given_moments(make_env):
    kwargs = {"bandits": 1, "reward_means": [3.0, -1.0], "reward_std": 0.5}
    env = make_env("rlrun/GaussianBandit-v0", 10000, kwargs=kwargs)
    env.reset()
    reward = env.step(torch.ones(10000, dtype=torch.int64))[0]["reward"]
    assert abs(reward.mean() + 1) < 4 * 0.5 / 100 and abs(reward.std() - 0.5) < 0.02


def test_bandit_contexts_are_uniform_or_fixed_per_environment(make_env):
    env = make_env("rlrun/BernoulliBandit-v0", 6000, kwargs={"bandits": 3})
    assert all(abs(count - 2000) < 4 * 37 for count in env.reset().bincount().tolist())


def test_bandit_instance_seed_fixes_the_means_only(make_env):
    def means(seed, instance_seed):
        env = make_env("rlrun/GaussianBandit-v0", 1, seed=seed, instance_seed=instance_seed)
        return env.venv.means.tolist()

    assert means(0, 5) == means(1, 5) != means(0, 6)


def test_bandit_resumes_bit_for_bit(make_env):
    one, other = (make_env("rlrun/BernoulliBandit-v0", 8, seed=seed, kwargs={"bandits": 3}) for seed in (1, 2))
    one.reset()
    other.reset()
    actions = torch.arange(8) % 5
    one.step(actions)
    other.set_extra_state(one.get_extra_state())
    assert one.exactness == "exact" and torch.equal(one.obs, other.obs)
    for _ in range(5):
        first, second = one.step(actions)[0], other.step(actions)[0]
        assert torch.equal(first["following"], second["following"]) and torch.equal(first["reward"], second["reward"])


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"kwargs": {"reward_probs": [0.5, 1.5]}}, r"reward_probs must lie in \[0, 1\]"),
        ({"kwargs": {"bandits": 3, "reward_probs": [[0.5], [0.5]]}}, r"must be \[arms\] or \[3, arms\]"),
        ({"kwargs": {"contexts": "mine"}}, "must be uniform or own"),
        ({"wrappers": {"flatten": {}}}, "does not support wrappers"),
    ],
)
def test_bandit_with_wrong_arguments_is_refused(given, line, make_env):
    with pytest.raises(ConfigError, match=line):
        make_env("rlrun/BernoulliBandit-v0", 2, **given)


def test_wheel_bandit_reward_by_quadrant_beyond_the_radius(make_env):
    env = make_env("rlrun/WheelBandit-v0", 5, kwargs={"delta": 0.5, "noise_std": 1e-6})
    env.reset()
    env.venv.seen = np.array([[0.6, 0.6], [0.6, -0.6], [-0.6, 0.6], [-0.6, -0.6], [0.1, 0.1]], np.float32)
    step, events = env.step(torch.tensor([1, 2, 3, 4, 0]))
    assert step["reward"].tolist() == pytest.approx([50, 50, 50, 50, 1.2], abs=1e-4)
    assert events.measures["regret"].tolist() == pytest.approx([0.0] * 5)
    env.venv.seen = np.array([[0.6, 0.6], [0.6, 0.6], [0.1, 0.1], [0.1, 0.1], [0.1, 0.1]], np.float32)
    regret = env.step(torch.tensor([0, 2, 1, 4, 0]))[1].measures["regret"]
    assert regret.tolist() == pytest.approx([48.8, 49.0, 0.2, 0.2, 0.0])


def test_wheel_contexts_fill_the_disc_evenly(make_env):
    env = make_env("rlrun/WheelBandit-v0", 20000)
    inside = (env.reset().norm(dim=1) < 0.5).float().mean().item()
    assert abs(inside - 0.25) < 4 * np.sqrt(0.1875 / 20000)


def test_linear_bandit_reward_is_the_product_with_the_context(make_env):
    env = make_env("rlrun/LinearBandit-v0", 6, kwargs={"noise_std": 1e-6}, instance_seed=3)
    context = env.reset().double().numpy()
    actions = torch.arange(6) % 4
    step, events = env.step(actions)
    means = context @ env.venv.weights.T
    assert step["reward"].tolist() == pytest.approx(means[range(6), actions.numpy()].tolist(), abs=1e-4)
    assert events.measures["regret"].tolist() == pytest.approx((means.max(1) - means[range(6), actions]).tolist())
