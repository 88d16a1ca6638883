"""Optimistic actor-critic: the shift of its exploration policy, and what it visits."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn
from toys import equal, toy, train, weights

from rlrun.core.loop import Loop
from rlrun.functional.distributions import SquashedNormal

Build = Callable[..., Loop]


class QuadraticCritics(nn.Module):
    """Two critics Q_i(s, u) = b_i^T u - u^T A u / 2 of the action before tanh; b_2 is larger than b_1 in the test."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.tensor([[1.0, -2.0, 0.5], [1.5, -2.5, 0.75]])
        self.curvature = torch.tensor([0.3, 0.6, 0.9])

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        u = torch.atanh(action)
        return (self.slope.unsqueeze(1) * u - 0.5 * self.curvature * u**2).sum(-1)


def shifted(build: Build, mean: Tensor, log_std: Tensor, critic: nn.Module) -> Tensor:
    """Returns the shift of the mean by OAC."""
    agent: Any = build(toy("oac", **{"algo.beta_ub": 4.0, "algo.shift_multiplier": 6.8})).agent
    agent.critic = critic
    return agent.optimistic(torch.zeros(len(mean), 3), SquashedNormal(mean, log_std)).mean - mean


def test_oac_shift_equals_the_closed_form_for_quadratic_critics(build: Build) -> None:
    critic = QuadraticCritics()
    mean = 0.5 * torch.randn(5, 3)
    log_std = torch.randn(5, 3)
    variance = (2 * log_std).exp()
    # std_i Q_i = |Q_1 - Q_2| / 2, whose gradient is (b_2 - b_1) / 2 if Q_2 > Q_1
    first, second = critic.slope
    second_is_larger = ((second - first) * mean).sum(-1, keepdim=True) > 0
    sign = torch.where(second_is_larger, 1.0, -1.0)
    gradient = (first + second) / 2 - critic.curvature * mean + 4.0 * sign * (second - first) / 2
    length = (gradient * variance * gradient).sum(-1, keepdim=True).sqrt()
    expected = 6.8 * variance * gradient / length
    torch.testing.assert_close(shifted(build, mean, log_std, critic), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_oac_shift_has_the_same_mahalanobis_length_for_every_scale_of_q(scale: float, build: Build) -> None:
    critic = QuadraticCritics()
    critic.slope *= scale
    critic.curvature *= scale
    log_std = torch.linspace(-3, 1, 12).view(4, 3)
    shift = shifted(build, torch.zeros(4, 3), log_std, critic)
    length = torch.linalg.vector_norm(shift / log_std.exp(), dim=-1)
    torch.testing.assert_close(length, torch.full((4,), 6.8), rtol=1e-5, atol=0)


def test_oac_shift_is_0_if_the_critics_do_not_depend_on_the_action(build: Build) -> None:
    critic = QuadraticCritics()
    critic.slope.zero_()
    critic.curvature.zero_()
    assert not shifted(build, torch.zeros(4, 3), torch.zeros(4, 3), critic).any()


def test_oac_with_shift_multiplier_0_has_the_bits_of_sac(build: Build) -> None:
    plain: Any = train(build(toy("sac")), 6)
    loop: Any = train(build(toy("oac", **{"algo.shift_multiplier": 0.0})), 6)
    assert equal(weights(plain), weights(loop)) and equal(plain.obs, loop.obs)
    shifts: Any = train(build(toy("oac")), 6)
    assert not equal(weights(plain), weights(shifts))


def test_oac_acts_as_sac_in_evaluation(build: Build) -> None:
    agent: Any = train(build(toy("oac")), 3).agent
    obs = torch.randn(2, 3)
    action, _ = agent.act(obs, {}, explore=False)
    assert torch.equal(action, agent.actor(obs).mode())


def test_oac_recorded_policy_has_the_bits_of_the_eager_one(build: Build) -> None:
    runs = []
    for engine in ("auto", "eager"):
        loop: Any = train(build(toy("oac", **{"trainer.engine": engine})), 20)
        runs.append([*weights(loop), loop.obs])
    assert equal(*runs)
    recorded: Any = train(build(toy("oac", **{"trainer.engine": "auto"})), 20).agent.act
    assert recorded.tapes and not recorded.refused and recorded.failed is None


class SparseGoal(gym.Env):
    """A point in [-1, 1]^2 that moves by at most 0.02 in x and y; the reward is 1 close to one corner, else 0."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self) -> None:
        self.at = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = np.zeros(2)
        return self.at.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at = np.clip(self.at + 0.02 * np.asarray(action, np.float64), -1, 1)
        found = bool((self.at > 0.8).all())
        return self.at.astype(np.float32), float(found), found, False, {}


def coverage(build: Build, algo: str, seed: int) -> int:
    """Returns the number of cells of a 20 x 20 grid that the agent visits in 1000 steps, without warm-up."""
    own = {"env.id": "test_oac:SparseGoal", "env.num_envs": 1, "env.max_episode_steps": 100, "env.selftest": "off",
           "algo.loop.warmup_steps": 20, "algo.loop.batch_size": 32, "algo.buffer.capacity": 2000,
           "network.hidden": [32, 32], "trainer.total_steps": 1000}  # fmt: skip
    loop: Any = build(toy(algo, seed=seed, **own))
    visited = set()
    for _ in range(1000):
        loop.tick()
        x, y = ((loop.obs[0] + 1) * 10).long().clamp(max=19).tolist()
        visited.add((x, y))
    return len(visited)


@pytest.mark.slow
def test_oac_visits_more_than_sac_while_no_reward_is_found(build: Build) -> None:
    for seed in range(5):
        assert coverage(build, "oac", seed) > 2 * coverage(build, "sac", seed)
