"""Soft actor-critic: targets, temperature, and the policy to which it converges."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.core.loop import Loop
from rlrun.types import Context

Build = Callable[..., Loop]


@pytest.mark.parametrize(("target_entropy", "direction"), [(100.0, 1), (-100.0, -1)])
def test_sac_temperature_follows_the_target_entropy(target_entropy: float, direction: int, build: Build) -> None:
    loop: Any = build(toy("sac", **{"algo.entropy.target_entropy": target_entropy}))
    before = loop.agent.entropy.alpha
    assert direction * (train(loop, 5).agent.entropy.alpha - before) > 0


def test_sac_target_entropy_defaults_to_minus_the_action_dimensions(build: Build) -> None:
    assert build(toy("sac")).agent.entropy.target == -1
    assert build(toy("sac", **{"env.id": "rlrun/PointGoal-v0"})).agent.entropy.target == -2
    assert build(toy("sac", **{"algo.entropy.target_entropy": -3.0})).agent.entropy.target == -3


def test_sac_td_target_is_the_minimum_critic_plus_the_entropy_bonus(build: Build) -> None:
    agent: Any = build(
        toy("sac", **{"algo.gamma": 0.9, "algo.entropy.initial_alpha": 0.2, "algo.critic.members": 3})
    ).agent
    batch = {
        "obs": torch.randn(6, 3), "next_obs": torch.randn(6, 3), "action": torch.rand(6, 1) * 2 - 1,
        "reward": torch.randn(6), "n_steps": torch.ones(6), "terminated": torch.zeros(6), "weight": torch.ones(6),
    }  # fmt: skip
    noise = torch.randn(6, 1)
    with torch.no_grad():
        action, log_prob = agent.actor(batch["next_obs"]).sample(noise)
        least = torch.stack([*agent.target_critic(batch["next_obs"], action)]).min(0).values
        target = batch["reward"] + 0.9 * (least - 0.2 * log_prob)
        errors = [0.5 * ((q - target) ** 2).mean() for q in agent.critic(batch["obs"], batch["action"])]
    loss = agent.update_critic(batch, noise)[0]["loss/critic"]
    torch.testing.assert_close(loss, sum(errors))


def test_sac_target_bootstraps_after_n_steps(build: Build) -> None:
    """The rewards are sums of two steps, of one step, and of two steps after which the episode terminated."""
    agent: Any = build(toy("sac", **{"algo.gamma": 0.9, "algo.n_step": 2, "algo.entropy.initial_alpha": 0.5})).agent
    with torch.no_grad():
        for param in (*agent.critic.parameters(), *agent.target_critic.module.parameters()):
            param.zero_()
        agent.target_critic.module.output.bias.fill_(10.0)
    batch = {
        "obs": torch.randn(3, 3), "next_obs": torch.randn(3, 3), "action": torch.zeros(3, 1),
        "reward": torch.tensor([1.0, 1.0, -2.0]), "n_steps": torch.tensor([2.0, 1.0, 2.0]),
        "terminated": torch.tensor([0.0, 0.0, 1.0]), "weight": torch.ones(3),
    }  # fmt: skip
    noise = torch.zeros(3, 1)
    log_prob = agent.actor(batch["next_obs"]).sample(noise)[1].tolist()
    by_hand = [1 + 0.81 * (10 - 0.5 * log_prob[0]), 1 + 0.9 * (10 - 0.5 * log_prob[1]), -2.0]
    loss = agent.update_critic(batch, noise)[0]["loss/critic"].item()
    assert loss == pytest.approx(2 * 0.5 * sum(target**2 for target in by_hand) / 3)


def test_sac_actor_update_changes_no_critic(build: Build) -> None:
    agent: Any = train(build(toy("sac")), 1).agent
    before = agent.critic_optim.flat.clone()
    batch = {"obs": torch.randn(6, 3), "weight": torch.ones(6)}
    agent.update_actor(batch, torch.randn(6, 1))
    assert torch.equal(before, agent.critic_optim.flat)


def test_sac_target_network_updates_every_target_every_updates(build: Build) -> None:
    loop: Any = build(toy("sac", **{"algo.target_every": 3, "algo.loop.updates_per_step": 0.5}))
    target = loop.agent.target_critic.module.output.bias
    for updates in range(1, 7):
        before = target.clone()
        train(loop, updates)
        assert torch.equal(before, target) == (updates % 3 != 0)


def taught_to_rest(build: Build, **changes: Any) -> Any:
    """Trains for 600 updates on one terminal state with reward -a^2 / 2."""
    rates = {f"algo.{name}_learning_rate": 3e-3 for name in ("actor", "critic")}
    fast = {"network.hidden": [32], "algo.entropy.initial_alpha": 0.04, "algo.entropy.learning_rate": 0.01}
    agent: Any = build(toy("sac", **rates | fast | changes)).agent
    draw, obs = torch.Generator().manual_seed(0), torch.zeros(128, 3)
    for i in range(600):
        action = 2 * torch.rand(128, 1, generator=draw) - 1
        batch = {"obs": obs, "next_obs": obs, "action": action, "reward": -0.5 * action[:, 0] ** 2}
        ended = {"n_steps": torch.ones(128), "terminated": torch.ones(128), "weight": torch.ones(128)}
        agent.update(batch | ended, Context(i, i, 0.0))
    return agent


def test_sac_fixed_temperature_sets_the_standard_deviation_of_the_policy(build: Build) -> None:
    """exp(-a^2 / 2 alpha) is normal with standard deviation sqrt(alpha); tanh is nearly linear in this range."""
    dist = taught_to_rest(build, **{"algo.entropy.learning_rate": 0.0}).actor(torch.zeros(1, 3))
    assert dist.log_std.exp().item() == pytest.approx(0.2, rel=0.1)
    assert abs(dist.mean.item()) < 0.05


def test_sac_learned_temperature_keeps_the_entropy_at_its_target(build: Build) -> None:
    dist = taught_to_rest(build, **{"algo.entropy.target_entropy": -0.5}).actor(torch.zeros(4000, 3))
    _, log_prob = dist.sample(torch.randn(4000, 1))
    assert -log_prob.mean().item() == pytest.approx(-0.5, abs=0.1)
