"""Implicit Q-learning: three losses against their equations, and the actions that are never evaluated."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.core.loop import Loop

Build = Callable[..., Loop]

CHANGES = {"algo.gamma": 0.9, "algo.expectile": 0.7, "algo.temperature": 0.5, "algo.max_weight": 1.5, "algo.members": 3}


@pytest.fixture
def agent(build: Build) -> Any:
    return train(build(toy("iql", **CHANGES)), 3).agent


@pytest.fixture
def batch() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "obs": torch.randn(8, 3), "next_obs": torch.randn(8, 3), "action": torch.rand(8, 1) * 2 - 1,
        "reward": torch.randn(8), "n_steps": torch.ones(8),
        "terminated": (torch.arange(8) % 4 == 0).float(), "weight": torch.arange(8) % 3 / 1.0,
    }  # fmt: skip


def test_iql_values_are_expectiles_of_the_minimum_target(agent: Any, batch: dict[str, Any]) -> None:
    with torch.no_grad():
        least = torch.stack([*agent.target_critic(batch["obs"], batch["action"])]).min(0).values
        u = least - agent.value(batch["obs"])
    by_hand = sum(
        float(w) * (0.7 if x > 0 else 0.3) * float(x) ** 2 for w, x in zip(batch["weight"], u, strict=True)
    ) / len(u)
    metrics, advantage = agent.update_value(batch)
    assert float(metrics["loss/value"]) == pytest.approx(by_hand, rel=1e-5)
    torch.testing.assert_close(advantage, u)


def test_iql_critic_target_is_the_value_of_the_next_state(agent: Any, batch: dict[str, Any]) -> None:
    with torch.no_grad():
        target = batch["reward"] + 0.9 * (1 - batch["terminated"]) * agent.value(batch["next_obs"])
        errors = agent.critic(batch["obs"], batch["action"]) - target  # [members, batch]
    metrics, priority = agent.update_critic(batch)
    torch.testing.assert_close(metrics["loss/critic"], 0.5 * (batch["weight"] * errors**2).mean(1).sum())
    torch.testing.assert_close(priority, errors.abs().mean(0))


def test_iql_clones_actions_by_their_clipped_advantage_weight(agent: Any, batch: dict[str, Any]) -> None:
    advantage = torch.tensor([0.0, 0.1, -0.3, 5.0, 0.2, -5.0, 0.0, 1.0])
    share = torch.tensor([min(2.718281828 ** (float(a) / 0.5), 1.5) for a in advantage])
    assert (share == 1.5).sum() == 2
    log_prob = agent.actor(batch["obs"]).log_prob(batch["action"]).detach()
    loss = agent.update_actor(batch, advantage)["loss/actor"]
    torch.testing.assert_close(loss, -(batch["weight"] * share * log_prob).mean())


def test_iql_losses_update_their_own_networks(agent: Any, batch: dict[str, Any]) -> None:
    names = ("value", "actor", "critic")
    updates = (lambda: agent.update_value(batch), lambda: agent.update_actor(batch, torch.zeros(8)),
               lambda: agent.update_critic(batch))  # fmt: skip
    for mover, update in zip(names, updates, strict=True):
        before = {name: getattr(agent, f"{name}_optim").flat.clone() for name in names}
        update()
        moved = [name for name in names if not torch.equal(before[name], getattr(agent, f"{name}_optim").flat)]
        assert moved == [mover]


def test_iql_values_only_stored_actions(agent: Any, batch: dict[str, Any]) -> None:
    calls: list[Any] = []
    for critic in (agent.critic, agent.target_critic):
        critic.register_forward_pre_hook(lambda module, given: calls.append(given))
    for method in (type(agent).update_value, type(agent).update_critic):
        method(agent, batch)
    assert len(calls) == 2 and all(obs is batch["obs"] and action is batch["action"] for obs, action in calls)
