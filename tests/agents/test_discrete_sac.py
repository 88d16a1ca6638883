"""SAC over discrete actions: targets, actor and target entropy."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy

from rlrun.core.loop import Loop

Build = Callable[..., Loop]

LOGITS = [math.log(0.25), math.log(0.75)]
Q = [[1.0, 4.0], [3.0, 2.0]]  # of two critics
BATCH = {
    "obs": torch.zeros(1, 4), "next_obs": torch.zeros(1, 4), "action": torch.tensor([1]),
    "reward": torch.tensor([1.0]), "n_steps": torch.ones(1), "terminated": torch.zeros(1), "weight": torch.ones(1),
}  # fmt: skip


def agent_that_says(build: Build, **changes: Any) -> Any:
    """Returns an agent whose policy and critics output LOGITS and Q for every observation."""
    agent: Any = build(toy("discrete_sac", **{"algo.gamma": 0.5, "algo.entropy.initial_alpha": 0.2}, **changes)).agent
    with torch.no_grad():
        for param in [*agent.actor.parameters(), *agent.critic.parameters(), *agent.target_critic.parameters()]:
            param.zero_()
        agent.actor.output.bias.copy_(torch.tensor(LOGITS))
        for critic in (agent.critic, agent.target_critic.module):
            critic.output.bias.copy_(torch.tensor(Q)[:, None])
    return agent


def test_discrete_sac_target_is_the_expected_minimum_critic(build: Build) -> None:
    agent = agent_that_says(build)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    target = 1 + 0.5 * (0.25 * 1.0 + 0.75 * 2.0 + 0.2 * entropy)
    loss = agent.update_critic(BATCH, torch.zeros(1))[0]["loss/critic"].item()
    assert loss == pytest.approx(0.5 * ((4 - target) ** 2 + (2 - target) ** 2))


def test_discrete_sac_actor_maximises_value_and_entropy(build: Build) -> None:
    metrics = agent_that_says(build).update_actor(BATCH, torch.zeros(1))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert metrics["loss/actor"].item() == pytest.approx(-0.2 * entropy - (0.25 * 1.0 + 0.75 * 2.0))
    assert metrics["loss/entropy"].item() == pytest.approx(entropy)


def test_discrete_sac_policy_converges_to_the_softmax_of_the_values(build: Build) -> None:
    agent = agent_that_says(build, **{"algo.entropy.learning_rate": 0.0, "algo.actor_learning_rate": 0.05})
    for _ in range(300):
        agent.update_actor(BATCH, torch.zeros(1))
    best = (torch.tensor([1.0, 2.0]) / 0.2).softmax(-1)
    torch.testing.assert_close(agent.actor(BATCH["obs"]).logits.softmax(-1)[0], best, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("given", "expected"), [(None, 0.98 * math.log(2)), (0.3, 0.3)])
def test_discrete_sac_target_entropy_defaults_to_nearly_uniform(
    given: float | None, expected: float, build: Build
) -> None:
    agent = build(toy("discrete_sac", **{"algo.entropy.target_entropy": given})).agent
    assert agent.entropy.target == pytest.approx(expected)


def test_discrete_sac_samples_actions_by_their_probability(build: Build) -> None:
    agent, obs = agent_that_says(build), torch.zeros(20_000, 4)
    assert agent.act(obs, {}, explore=True)[0].float().mean().item() == pytest.approx(0.75, abs=0.02)
    assert (agent.act(obs, {}, explore=False)[0] == 1).all()
