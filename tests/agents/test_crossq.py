"""CrossQ: joint forward pass, batch statistics, entropy coefficient."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.core.loop import Loop
from rlrun.networks.norm import batch_statistics

Build = Callable[..., Loop]


def statistics(network: torch.nn.Module) -> list[torch.Tensor]:
    return [buffer.clone() for buffer in network.buffers()]


def moved(network: torch.nn.Module, before: list[torch.Tensor]) -> bool:
    return any(not torch.equal(old, new) for old, new in zip(before, network.buffers(), strict=True))


def batch() -> Any:
    return {
        "obs": torch.randn(6, 3), "next_obs": torch.randn(6, 3), "action": torch.rand(6, 1) * 2 - 1,
        "reward": torch.randn(6), "n_steps": torch.tensor([1.0, 2.0, 1.0, 1.0, 2.0, 1.0]),
        "terminated": torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), "weight": torch.ones(6),
    }  # fmt: skip


def test_crossq_target_is_the_minimum_of_the_joint_forward_pass(build: Build) -> None:
    agent: Any = build(toy("crossq", **{"algo.gamma": 0.9, "algo.entropy.initial_alpha": 0.2})).agent
    data, noise = batch(), torch.randn(6, 1)
    before = agent.state_dict()
    with torch.no_grad(), batch_statistics(agent.critic):
        action, log_prob = agent.actor(data["next_obs"]).sample(noise)
        both = agent.critic(torch.cat([data["obs"], data["next_obs"]]), torch.cat([data["action"], action]))
        q, next_q = both[:, :6], both[:, 6:].min(0).values
        discount = torch.tensor([0.9, 0.81, 0.0, 0.9, 0.81, 0.9])
        target = data["reward"] + discount * (next_q - 0.2 * log_prob)
        by_hand = sum(0.5 * ((one - target) ** 2).mean() for one in q)
    agent.load_state_dict(before)
    torch.testing.assert_close(agent.update_critic(data, noise)["loss/critic"], by_hand)


def test_crossq_statistics_move_only_in_the_update_of_their_network(build: Build) -> None:
    loop: Any = train(build(toy("crossq")), 3)
    agent, data, noise = loop.agent, batch(), torch.randn(6, 1)
    actor, critic = statistics(agent.actor), statistics(agent.critic)
    agent.act(data["obs"], {}, explore=True)
    agent.act(data["obs"], {}, explore=False)
    assert not moved(agent.actor, actor) and not moved(agent.critic, critic)
    agent.update_critic(data, noise)
    assert not moved(agent.actor, actor) and moved(agent.critic, critic)
    critic = statistics(agent.critic)
    agent.update_actor(data, noise)
    assert moved(agent.actor, actor) and not moved(agent.critic, critic)


@pytest.mark.parametrize("warmup", [0, 3])
def test_crossq_recorded_kernels_train_as_eager_ones(warmup: int, build: Build) -> None:
    def trained(engine: str) -> Any:
        norm = {"name": "batch_renorm", "momentum": 0.9, "warmup": warmup}
        agent = train(build(toy("crossq", **{"trainer.engine": engine, "network.norm": norm})), 12).agent
        return agent.state_dict()

    eager, recorded = trained("eager"), trained("auto")
    for key, value in eager.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, recorded[key]), key


def test_crossq_alpha_rises_below_the_target_entropy(build: Build) -> None:
    for target_entropy, direction in ((100.0, 1), (-100.0, -1)):
        agent: Any = build(
            toy("crossq", **{"algo.entropy.target_entropy": target_entropy, "algo.policy_delay": 1})
        ).agent
        before = agent.entropy.log_alpha.item()
        agent.update_actor(batch(), torch.randn(6, 1))
        assert direction * (agent.entropy.log_alpha.item() - before) > 0
