"""PPO: minibatches, target KL, learning rate and ratios."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import Values, toy, train

from rlrun.core.loop import Loop

Build = Callable[..., Loop]


def test_ppo_handles_a_last_minibatch_of_one_row(build: Build) -> None:
    loop = train(build(toy("ppo", **{"algo.minibatch_size": 5})), 3)  # of 16 rows
    assert all(torch.isfinite(param).all() for param in loop.agent.parameters())
    assert not loop.agent.optim.fault


@pytest.mark.parametrize(("target_kl", "epochs"), [(None, 6), (1e3, 6), (1e-9, 1)])
def test_ppo_epochs_stop_at_the_target_kl(target_kl: float | None, epochs: int, build: Build) -> None:
    loop = train(build(toy("ppo", **{"algo.epochs": 6, "algo.target_kl": target_kl})), 1)
    assert loop.agent.optim.steps == epochs * 2  # minibatches of 8 from 16 rows


def test_ppo_reports_the_losses_of_the_first_and_last_epoch(build: Build) -> None:
    metrics = build(toy("ppo")).tick()
    for loss in ("loss/critic", "loss/actor"):
        first, last = metrics[f"{loss}_first_epoch"], metrics[f"{loss}_last_epoch"]
        torch.testing.assert_close(metrics[loss], (first + last) / 2)  # two epochs


def test_ppo_learning_rate_stays_positive_in_the_last_rollout(build: Build) -> None:
    loop = build(
        toy("ppo", **{"algo.schedule": {"learning_rate": {"linear": {"end": 0.0}}}, "trainer.total_steps": 64})
    )
    rates = []
    for updates in range(1, 5):
        rates.append(train(loop, updates).agent.optim.learning_rate.item())
    assert rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025])


@pytest.mark.parametrize("statistics", [{"name": "all"}, {"name": "ema", "rate": 0.1}, {"name": "window", "size": 20}])
def test_ppo_first_ratio_is_1_with_normalised_observations(statistics: Values, build: Build) -> None:
    words = {"env.normalize.kind": "both", "env.normalize.statistics": statistics}
    loop: Any = build(toy("ppo", **words, **{"algo.epochs": 1, "algo.minibatch_size": 16}))
    for _ in range(4):
        metrics = loop.tick()
        assert metrics["loss/kl"].item() == pytest.approx(0, abs=1e-6) and metrics["loss/clipped"] == 0


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_ppo_advantages_depend_only_on_their_episode(end: str, build: Build) -> None:
    agent: Any = build(toy("ppo")).agent
    no = torch.zeros(4, 1, dtype=torch.bool)
    rollout = {
        "obs": torch.randn(4, 1, 4), "next_obs": torch.randn(4, 1, 4), "reward": torch.ones(4, 1), "action": no,
        "log_prob": torch.zeros(4, 1), "weight": torch.ones(4, 1), "terminated": no.clone(), "truncated": no.clone(),
    }  # fmt: skip
    rollout[end][1] = True
    before = agent.advantages(rollout)["advantage"]
    after = agent.advantages(rollout | {"reward": torch.tensor([[1.0], [1.0], [9.0], [1.0]])})["advantage"]
    assert torch.equal(before[:2], after[:2]) and not torch.equal(before[2], after[2])


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_ppo_log_probabilities_beyond_their_clip_have_no_gradient(advantage: float, build: Build) -> None:
    agent: Any = build(toy("ppo", **{"algo.log_prob_clip": 1.5, "algo.clip_range": 9.0})).agent
    log_prob = torch.tensor([-3.0, -1.0, 1.0, 3.0, 1.0], requires_grad=True)
    old = torch.tensor([-2.0, -1.2, 0.9, 2.0, 3.0])
    ones = torch.ones(5)
    loss, _ = agent.policy_loss(log_prob, log_prob - old, advantage * ones, ones)
    (gradient,) = torch.autograd.grad(loss, log_prob)
    ratio = torch.tensor([0.0, 0.2, 0.1, 0.0, 1.0 - 1.5]).exp()
    torch.testing.assert_close(loss, -advantage * ratio.mean())
    torch.testing.assert_close(gradient, -advantage * ratio / 5 * torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0]))
