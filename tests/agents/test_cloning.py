"""Behaviour cloning, alone and as a part of SAC's policy loss."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.core.loop import Loop
from rlrun.errors import ConfigError

Build = Callable[..., Loop]


def pendulum(rows: int = 6) -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "obs": torch.randn(rows, 3), "next_obs": torch.randn(rows, 3), "action": torch.rand(rows, 1) * 2 - 1,
        "reward": torch.randn(rows), "n_steps": torch.ones(rows),
        "terminated": torch.zeros(rows), "weight": torch.ones(rows),
    }  # fmt: skip


def test_bc_loss_is_the_negative_log_likelihood_of_continuous_actions(build: Build) -> None:
    agent: Any = train(build(toy("bc")), 3).agent
    batch = pendulum() | {"weight": torch.tensor([1.0, 1, 1, 0, 2, 1])}
    mean, std = agent.actor(batch["obs"]).mean, agent.actor(batch["obs"]).log_std.exp()
    nll = -torch.distributions.Normal(mean, std).log_prob(batch["action"]).sum(-1)
    torch.testing.assert_close(agent.update_actor(batch)["cloning"], (batch["weight"] * nll).mean().detach())


def test_bc_loss_is_the_negative_log_likelihood_of_discrete_actions(build: Build) -> None:
    agent: Any = build(toy("bc", **{"env.id": "CartPole-v1"})).agent
    obs, action = torch.randn(6, 4), torch.tensor([0, 1, 1, 0, 1, 0])
    nll = torch.nn.functional.cross_entropy(agent.actor(obs).logits, action)
    loss = agent.update_actor({"obs": obs, "action": action, "weight": torch.ones(6)})["cloning"]
    torch.testing.assert_close(loss, nll.detach())


def test_bc_deterministic_policy_minimises_the_squared_error(build: Build) -> None:
    agent: Any = build(toy("bc", **{"algo.policy": "deterministic"})).agent
    batch = pendulum()
    error = ((agent.act(batch["obs"], {}, True)[0] - batch["action"]) ** 2).mean()
    torch.testing.assert_close(agent.update_actor(batch)["cloning"], error)
    for _ in range(300):
        agent.update_actor(batch)
    assert agent.update_actor(batch)["cloning"] < 0.1 * error
    with pytest.raises(ConfigError, match="deterministic: is for Box actions with finite bounds"):
        build(toy("bc", **{"env.id": "CartPole-v1", "algo.policy": "deterministic"}))


@pytest.mark.parametrize("filtered", [False, True])
def test_sac_cloning_filters_demonstrations_by_the_critics(filtered: bool, build: Build) -> None:
    plain = build(toy("sac_from_data", **{"algo.cloning_coef": 0.0})).agent
    agent: Any = build(toy("sac_from_data", **{"algo.cloning_coef": 0.5, "algo.cloning_filter": filtered})).agent
    batch, noise = pendulum(40) | {"shown": (torch.arange(40) % 3 > 0).float()}, torch.randn(40, 1)
    with torch.no_grad():
        action, _ = agent.actor(batch["obs"]).sample(noise)
        value = agent.critic(batch["obs"], action).amin(0)
        error = (torch.tanh(agent.actor(batch["obs"]).mean) - batch["action"]).squeeze(-1) ** 2
        better = agent.critic(batch["obs"], batch["action"]).amin(0) > value
    assert 5 < better.sum() < 35, "else the filter is not seen"
    kept = batch["shown"] * (better if filtered else 1)
    own, both = plain.update_actor(batch, noise)["actor"], agent.update_actor(batch, noise)["actor"]
    torch.testing.assert_close(both - own, (0.5 * value.abs().mean() * kept * error).mean())


def test_sac_cloning_without_demonstrations_is_sac(build: Build) -> None:
    changes = {"algo.cloning_coef": 0.0, "algo.loop": toy("sac")["algo"]["loop"]}
    one, other = train(build(toy("sac_from_data", **changes)), 4), train(build(toy("sac")), 4)
    for left, right in zip(one.agent.parameters(), other.agent.parameters(), strict=True):
        assert torch.equal(left, right)
