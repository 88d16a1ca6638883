"""Multi-dimensional Q-learning: values of bins, the policy that they define, targets, distillation."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.run.evaluation import evaluate
from rlrun.types import Batch

Build = Callable[..., Loop]


def agent_of(build: Build, **changes: Any) -> Any:
    """Returns an agent with two action dimensions, 5 bins each, and observations [batch, 2]."""
    return build(toy("mdq", **{"env.id": "rlrun/PointGoal-v0", "algo.bins": 5} | changes)).agent


def rows(count: int) -> Batch:
    return {
        "obs": torch.randn(count, 2), "next_obs": torch.randn(count, 2), "action": 2 * torch.rand(count, 2) - 1,
        "reward": torch.randn(count), "n_steps": torch.ones(count), "terminated": torch.arange(count) % 2.0,
        "weight": torch.ones(count),
    }  # fmt: skip


def test_mdq_default_target_entropy_is_that_of_sac_in_bins(build: Build) -> None:
    """With 5 bins even a single bin is wider than a density of entropy -1, so the target is 0."""
    assert agent_of(build, **{"algo.bins": 15}).entropy.target == pytest.approx(2 * (math.log(7.5) - 1))
    assert agent_of(build, **{"algo.bins": 5}).entropy.target == 0


@pytest.mark.parametrize(("target_entropy", "direction"), [(100.0, 1), (-100.0, -1)])
def test_mdq_temperature_follows_the_target_entropy(target_entropy: float, direction: int, build: Build) -> None:
    agent = agent_of(build, **{"algo.entropy.target_entropy": target_entropy})
    before = agent.entropy.alpha
    agent.update_critic(rows(6), torch.rand(6, 2, 5))
    assert direction * (agent.entropy.alpha - before) > 0


def test_mdq_without_entropy_samples_the_best_bins_and_learns(build: Build) -> None:
    agent = agent_of(build, **{"algo.entropy": {"name": "fixed", "ent_coef": 0.0}})
    obs = torch.randn(20, 2)
    sampled, _ = agent.act(obs, {}, explore=True)
    greedy, _ = agent.act(obs, {}, explore=False)
    assert torch.equal(sampled, greedy)
    with torch.no_grad():
        error = agent.actor.value(obs, greedy, agent.entropy.temperature)
        best = agent.actor.values(obs, greedy)[0].amax(-1)  # V(s), the value of the best bin of the first dimension
    torch.testing.assert_close(error, best, atol=1e-4, rtol=0.0)
    assert agent.update_actor(rows(8), torch.randn(8, 2))["loss/actor"].isfinite()


def test_mdq_td_target_has_the_divergence_from_uniform_of_every_dimension(build: Build) -> None:
    agent = agent_of(build, **{"algo.gamma": 0.9, "algo.entropy.initial_alpha": 0.5})
    batch = rows(6)
    noise = torch.rand(6, 2, 5)
    with torch.no_grad():
        target, divergence = agent.target_q(batch, noise, agent.target_critic)
        action, _ = agent.actor.sample(batch["next_obs"], torch.tensor(0.5), noise)
        expected = torch.zeros(6)
        for k in range(2):
            p = (agent.actor.values_of(k, batch["next_obs"], action) / 0.5).softmax(-1)
            expected += (p * (p / (1 / 5)).log()).sum(-1)
        q = agent.target_critic(batch["next_obs"], action).min(0).values
    torch.testing.assert_close(divergence, expected)
    soft = batch["reward"] + 0.9 * (1 - batch["terminated"]) * (q - 0.5 * expected)
    torch.testing.assert_close(target, soft)
    assert (expected > 0).all()


def test_mdq_distils_the_minimum_of_the_target_critics_at_noisy_actions(build: Build) -> None:
    agent = agent_of(build, **{"algo.distill_noise": 0.5, "algo.entropy.initial_alpha": 0.5})
    for param in agent.target_critic.parameters():
        param.add_(0.1)  # the target critics are not the critics
    batch, noise = rows(8), torch.randn(8, 2)
    with torch.no_grad():
        action = (batch["action"] + 0.5 * noise).clamp(-1, 1)
        target = agent.target_critic(batch["obs"], action).min(0).values
        value = agent.actor.value(batch["obs"], action, torch.tensor(0.5))
    critics = agent.critic_optim.flat.clone()
    loss = agent.update_actor(batch, noise)["loss/actor"]
    torch.testing.assert_close(loss, ((value - target) ** 2).mean())
    assert torch.equal(critics, agent.critic_optim.flat)


def test_mdq_distillation_error_falls(build: Build) -> None:
    agent = agent_of(build, **{"network.hidden": [32], "algo.bins": 15})
    batch = rows(256)
    losses = [float(agent.update_actor(batch, torch.randn(256, 2))["loss/actor"]) for _ in range(200)]
    assert sum(losses[-10:]) < 0.1 * sum(losses[:10])


def test_mdq_evaluation_takes_the_best_bin_and_exploration_samples(build: Build) -> None:
    agent = train(build(toy("mdq", **{"env.id": "rlrun/PointGoal-v0"})), 2).agent
    obs = torch.randn(4, 2)
    greedy, _ = agent.act(obs, {}, explore=False)
    first = agent.actor.values(obs, torch.zeros(4, 2))[0].argmax(-1)
    assert torch.equal(greedy[:, 0], agent.actor.centres[first])
    second = agent.actor.values(obs, greedy)[1].argmax(-1)
    assert torch.equal(greedy[:, 1], agent.actor.centres[second])
    drawn = torch.stack([agent.act(obs, {}, explore=True)[0] for _ in range(20)])
    assert len(drawn.unique(dim=0)) > 10


def best(build: Build, algo: str, seed: int) -> float:
    """Returns the reward of the greedy action after 4000 steps in the multimodal bandit."""
    small = {
        "network.hidden": [64, 64],
        "algo.loop.warmup_steps": 1000,
        "algo.loop.batch_size": 128,
        "algo.entropy.initial_alpha": 0.2,
        "algo.entropy.learning_rate": 3e-3,
        "seed": seed,
    }
    values = jobs([f"algo={algo}", "env=MultimodalBandit", "preset=none"])[0].values
    loop = build(put(values, small | {"trainer.total_steps": 4000}))
    while loop.steps < 4000:
        loop.tick()
    return evaluate(loop.agent, loop.addons, loop.env, 1)["eval/return_mean"]


@pytest.mark.slow
def test_mdq_finds_the_global_maximum_of_a_multimodal_bandit_and_sac_a_local_one(build: Build) -> None:
    """The global maximum is 1, local ones are at most 0.6. Neighbouring bins are 2 / 14 apart."""
    assert sum(best(build, "mdq", seed) > 0.7 for seed in range(5)) == 5
    assert sum(best(build, "sac", seed) > 0.7 for seed in range(5)) <= 1
