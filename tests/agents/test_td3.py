"""TD3 and DDPG: delayed updates and target smoothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.core.loop import Loop
from rlrun.types import Batch

Build = Callable[..., Loop]


def batch_of(rows: int) -> Batch:
    draw = torch.Generator().manual_seed(0)
    return {
        "obs": torch.randn(rows, 3, generator=draw), "next_obs": torch.randn(rows, 3, generator=draw),
        "action": 2 * torch.rand(rows, 1, generator=draw) - 1, "reward": torch.randn(rows, generator=draw),
        "n_steps": torch.ones(rows), "terminated": torch.zeros(rows), "weight": torch.ones(rows),
    }  # fmt: skip


@pytest.mark.parametrize("delay", [1, 3])
def test_td3_delays_the_actor_and_target_updates(delay: int, build: Build) -> None:
    agent: Any = (loop := build(toy("td3", **{"algo.policy_delay": delay, "algo.target_every": None}))).agent
    for updates in range(1, 7):
        actor, critic, target = (
            part.clone() for part in (agent.actor_optim.flat, agent.critic_optim.flat, agent.target_critic.slow[0])
        )
        train(loop, updates)
        due = updates % delay == 0
        assert not torch.equal(critic, agent.critic_optim.flat)
        assert torch.equal(actor, agent.actor_optim.flat) == (not due)
        assert torch.equal(target, agent.target_critic.slow[0]) == (not due)


def test_td3_target_is_the_minimum_critic_at_the_smoothed_action(build: Build) -> None:
    agent: Any = build(toy("td3", **{"algo.gamma": 0.9, "algo.target_noise": 0.2, "algo.target_noise_clip": 0.5})).agent
    batch, noise = batch_of(6), torch.tensor([[0.0], [1.0], [-1.0], [2.5], [100.0], [-100.0]])
    smoothing = torch.tensor([[0.0], [0.2], [-0.2], [0.5], [0.5], [-0.5]])  # target_noise 0.2, clipped to 0.5
    with torch.no_grad():
        for param in (*agent.target_actor.parameters(), *agent.target_critic.parameters()):
            param.add_(0.1)  # the target networks are not the networks
        action = (agent.target_actor(batch["next_obs"]) + smoothing).clamp(-1, 1)
        least = torch.stack([*agent.target_critic(batch["next_obs"], action)]).min(0).values
        target = batch["reward"] + 0.9 * least
        errors = [0.5 * ((q - target) ** 2).mean() for q in agent.critic(batch["obs"], batch["action"])]
    torch.testing.assert_close(agent.update_critic(batch, noise)[0]["loss/critic"], sum(errors))


def test_td3_target_action_clips_noise_and_action(build: Build) -> None:
    agent: Any = build(toy("td3", **{"algo.target_noise": 0.2, "algo.target_noise_clip": 0.5})).agent
    action = torch.tensor([[0.0], [0.0], [0.0], [0.9], [-1.0], [1.0]])
    noise = torch.tensor([[1.0], [-100.0], [2.0], [2.0], [-1.0], [-5.0]])
    agent.target_actor.forward = lambda obs: action
    moved = agent.next_action({"next_obs": None}, noise)
    assert moved.flatten().tolist() == pytest.approx([0.2, -0.5, 0.4, 1.0, -1.0, 0.5])


def test_td3_target_action_without_noise_is_that_of_the_target_actor(build: Build) -> None:
    agent: Any = build(toy("td3", **{"algo.target_noise": 0.0, "algo.target_noise_clip": 0.0})).agent
    action = torch.tensor([[0.3], [-1.0]])
    agent.target_actor.forward = lambda obs: action
    assert torch.equal(agent.next_action({"next_obs": None}, torch.full((2, 1), 7.0)), action)


def test_td3_actor_update_changes_no_critic(build: Build) -> None:
    agent: Any = train(build(toy("td3")), 2).agent
    before = agent.critic_optim.flat.clone()
    agent.update_actor(batch_of(6))
    assert torch.equal(before, agent.critic_optim.flat)


@pytest.mark.parametrize("algo", ["td3", "sac", "discrete_sac", "ddpg"])
def test_actor_critic_priorities_are_root_mean_squared_td_errors(algo: str, build: Build) -> None:
    agent: Any = build(toy(algo)).agent
    batch = batch_of(6)
    if algo == "discrete_sac":
        batch |= {"obs": torch.randn(6, 4), "next_obs": torch.randn(6, 4), "action": torch.tensor([0, 1] * 3)}
    noise = torch.randn(6, 1)
    with torch.no_grad():
        target = agent.target_q(batch, noise, agent.target_critic.select(None))
        error = agent.critic(batch["obs"], batch["action"]) - target
    _, priority = agent.update_critic(batch, noise)
    torch.testing.assert_close(priority, (error**2).mean(0).sqrt())


@pytest.mark.parametrize("algo", ["td3", "sac", "recurrent_sac"])
def test_prioritized_replay_follows_the_errors_of_continuous_agents(algo: str, build: Build) -> None:
    """Without priorities from the agent, all stored transitions would keep the initial priority."""
    prioritized = {"name": "prioritized", "alpha": 1.0, "beta": 0.4, "divide_weights": True, "epsilon": 1e-5}
    section = toy(algo)["algo"]["buffer"] | prioritized
    loop: Any = train(build(toy(algo, **{"algo.buffer": section})), 8)
    first, last = loop.buffer.span
    priorities = loop.buffer.tree.get(loop.buffer.storage_index(torch.arange(first, last)))
    assert len(set(priorities[priorities > 0].tolist())) > 2
    assert loop.batch["weight"].unique().numel() > 1, "drawn with different probabilities"


def test_td3_targets_have_a_period_of_their_own(build: Build) -> None:
    periods = {"algo.policy_delay": 2, "algo.target_every": 3, "algo.tau": 0.25}
    agent: Any = (loop := build(toy("td3", **periods))).agent
    for updates in range(1, 7):
        actor, target = agent.actor_optim.flat.clone(), agent.target_critic.slow[0].clone()
        target_actor = agent.target_actor.slow[0].clone()
        train(loop, updates)
        assert torch.equal(actor, agent.actor_optim.flat) == (updates % 2 != 0)
        assert torch.equal(target, agent.target_critic.slow[0]) == (updates % 3 != 0)
        assert torch.equal(target_actor, agent.target_actor.slow[0]) == (updates % 3 != 0)
        if updates % 3 == 0:
            torch.testing.assert_close(
                agent.target_actor.slow[0], target_actor.lerp(next(agent.actor.parameters()), 0.25)
            )
            torch.testing.assert_close(agent.target_critic.slow[0], target.lerp(next(agent.critic.parameters()), 0.25))
