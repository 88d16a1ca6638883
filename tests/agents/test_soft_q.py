"""Soft Q-learning over discrete actions: its policy, its targets, and the values to which it converges."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy

from rlrun.core.loop import Loop
from rlrun.types import MASK, Batch, Context

Build = Callable[..., Loop]
Q = torch.tensor([[1.0, 4.0], [3.0, 2.0]])  # of two critics
FIXED = {"name": "fixed", "ent_coef": 0.5}


def transitions(rows: int = 1) -> Batch:
    return {
        "obs": torch.zeros(rows, 4), "next_obs": torch.zeros(rows, 4), "action": torch.ones(rows, dtype=torch.int64),
        "reward": torch.ones(rows), "n_steps": torch.ones(rows), "terminated": torch.zeros(rows),
        "weight": torch.ones(rows),
    }  # fmt: skip


def agent_that_says(build: Build, **changes: Any) -> Any:
    """Returns an agent whose critics output Q for every observation, with alpha at 0.5."""
    values = put(toy("soft_q"), {"algo.entropy": FIXED, "algo.gamma": 0.5} | changes)
    agent: Any = build(values).agent
    with torch.no_grad():
        for param in [*agent.critic.parameters(), *agent.target_critic.parameters()]:
            param.zero_()
        agent.critic.output.bias.copy_(Q[:, None])
        agent.target_critic.module.output.bias.copy_(10 * Q[:, None])
    return agent


def test_soft_q_policy_is_the_softmax_of_the_minimum_critic(build: Build) -> None:
    agent, obs = agent_that_says(build), torch.zeros(20_000, 4)
    probability = (torch.tensor([1.0, 2.0]) / 0.5).softmax(-1)
    torch.testing.assert_close(agent.distribution(obs[:1]).logits.softmax(-1)[0], probability)
    action, _ = agent.act(obs, {}, explore=True)
    assert action.float().mean().item() == pytest.approx(probability[1].item(), abs=0.01)
    action, _ = agent.act(obs, {}, explore=False)
    assert (action == 1).all()


def test_soft_q_policy_is_greedy_without_entropy_and_legal_with_a_mask(build: Build) -> None:
    greedy = agent_that_says(build, **{"algo.entropy": FIXED | {"ent_coef": 0.0}})
    action, _ = greedy.act(torch.zeros(100, 4), {}, explore=True)
    assert (action == 1).all()
    masked = agent_that_says(build)
    obs = {"obs": torch.zeros(100, 4), MASK: torch.tensor([[1, 0]]).expand(100, 2)}
    masked.critic.forward = lambda obs: Q[:, None].expand(2, 100, 2)
    action, _ = masked.act(obs, {}, explore=True)
    assert (action == 0).all()
    assert (masked.distribution(obs).entropy() == 0).all()


@pytest.mark.parametrize(("reward", "has_entropy"), [("bootstrap", 1.0), ("none", 0.0)])
def test_soft_q_target_is_the_soft_value_of_the_next_state(reward: str, has_entropy: float, build: Build) -> None:
    """The online critics give the policy, the target critics its value."""
    section = {"none": {"name": "none"}, "bootstrap": {"name": "bootstrap", "normalize": False}}[reward]
    agent = agent_that_says(build, **{"algo.entropy_reward": section})
    p = 1 / (1 + math.exp(-2))  # of the second action
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    target = 1 + 0.5 * ((1 - p) * 10 + p * 20 + has_entropy * 0.5 * entropy)
    metrics, priority = agent.update_critic(transitions())
    assert metrics["loss/critic"].item() == pytest.approx(0.5 * ((4 - target) ** 2 + (2 - target) ** 2))
    assert priority.item() == pytest.approx((((4 - target) ** 2 + (2 - target) ** 2) / 2) ** 0.5)


def test_soft_q_learns_critics_and_temperature_alone(build: Build) -> None:
    auto = toy("soft_q")["algo"]["entropy"] | {"initial_alpha": 0.5, "target_entropy": 0.6}
    agent = agent_that_says(build, **{"algo.entropy": auto})
    assert {name.partition(".")[0] for name, param in agent.named_parameters() if param.requires_grad} == {
        "critic",
        "entropy",
    }
    for _ in range(300):
        metrics = agent.update_alpha(transitions(4))
    assert metrics["loss/entropy"].item() == pytest.approx(0.6, abs=0.01), "alpha alone moves the entropy to its target"


def test_soft_q_converges_to_soft_value_iteration(build: Build) -> None:
    """Four states, two actions, random transitions and rewards, a constant temperature; no function approximation."""
    gamma, alpha = 0.8, 0.5
    draw = torch.Generator().manual_seed(0)
    transition = torch.rand(4, 2, 4, generator=draw).pow(3)
    transition = transition / transition.sum(-1, keepdim=True)
    reward = 2 * torch.randn(4, 2, generator=draw)
    exact = torch.zeros(4, 2)
    for _ in range(200):
        value = alpha * torch.logsumexp(exact / alpha, -1)
        exact = reward + gamma * transition @ value
    state, action, successor = torch.cartesian_prod(torch.arange(4), torch.arange(2), torch.arange(4)).T
    one_hot = torch.eye(4)
    batch = {
        "obs": one_hot[state], "next_obs": one_hot[successor], "action": action, "reward": reward[state, action],
        "n_steps": torch.ones(32), "terminated": torch.zeros(32), "weight": transition.flatten(),
    }  # fmt: skip
    changes = {"network.hidden": [], "algo.gamma": gamma, "algo.tau": 1.0, "algo.target_every": 1}
    rate = {"algo.learning_rate": 0.1, "algo.schedule": {"learning_rate": {"linear": {"end": 0.0}}}}
    loop: Any = build(put(toy("soft_q"), {"algo.entropy": FIXED} | changes | rate))
    agent = loop.agent
    for update in range(600):
        ctx = Context(update, update, update / 600)
        loop.begin_update(ctx)
        agent.update(batch, ctx)
    q = agent.critic(one_hot).detach()
    for member in q:
        torch.testing.assert_close(member, exact, atol=0.01, rtol=0)
    best = (exact / alpha).softmax(-1)
    torch.testing.assert_close(agent.distribution(one_hot).logits.softmax(-1).detach(), best, atol=0.01, rtol=0)
