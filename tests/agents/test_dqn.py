"""DQN: target networks, exploration, double Q-learning and action masks."""

from collections.abc import Callable

import pytest
import torch
from toys import equal, put, toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.types import Context

Build = Callable[..., Loop]


def test_dqn_target_network_updates_every_target_every_updates(build: Build) -> None:
    loop = build(toy("dqn", **{"algo.target_every": 4, "algo.tau": 1.0}))
    target = [param.clone() for param in loop.agent.target_network.parameters()]
    for updates in range(1, 9):
        train(loop, updates)
        now = [param.clone() for param in loop.agent.target_network.parameters()]
        assert equal(now, list(loop.agent.q.parameters())) == (updates % 4 == 0)
        assert equal(now, target) == (updates % 4 != 0)
        target = now


@pytest.mark.parametrize(
    ("over", "total"),
    [({"fraction": 0.5, "end_step": None}, 80), ({"fraction": None, "end_step": 40}, 80), ({"end_step": 40}, 1000)],
)
def test_dqn_epsilon_falls_over_a_fraction_of_the_run_or_over_steps(
    over: dict[str, object], total: int, build: Build
) -> None:
    epsilon = {"algo.epsilon.start": 1.0, "algo.epsilon.end": 0.1}
    changes = epsilon | {f"algo.epsilon.{key}": value for key, value in over.items()}
    loop = build(toy("dqn", **changes, **{"trainer.total_steps": total}))
    assert loop.agent.epsilon == 1
    for _ in range(10):
        loop.tick()
    assert loop.agent.report()["epsilon"].item() == pytest.approx(1 - 0.9 * 20 / 40)
    for _ in range(15):
        loop.tick()
    assert loop.agent.report()["epsilon"].item() == pytest.approx(0.1)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_dqn_acts_at_random_with_probability_epsilon(epsilon: float, build: Build) -> None:
    agent = build(toy("dqn")).agent
    agent.epsilon.fill_(epsilon)
    obs = torch.randn(1, 4).expand(20_000, -1)
    greedy, _ = agent.act(obs, {}, explore=False)
    action, _ = agent.act(obs, {}, explore=True)
    assert (action != greedy).float().mean().item() == pytest.approx(epsilon / 2, abs=0.02)


def test_double_dqn_target_selects_by_the_online_network(build: Build) -> None:
    losses = []
    for double in (False, True):
        agent = build(
            toy(
                "dqn",
                **{"algo.gamma": 0.5, "algo.double": double, "algo.critic.huber_delta": None, "algo.critic.members": 1},
            )
        ).agent
        with torch.no_grad():
            for param in (*agent.q.parameters(), *agent.target_network.parameters()):
                param.zero_()
            agent.q.output.bias.copy_(torch.tensor([1.0, 0.0]))  # prefers action 0
            agent.target_network.module.output.bias.copy_(torch.tensor([3.0, 5.0]))
        batch = {
            "obs": torch.zeros(1, 4), "next_obs": torch.zeros(1, 4), "action": torch.tensor([1]),
            "reward": torch.ones(1), "n_steps": torch.ones(1), "terminated": torch.zeros(1), "weight": torch.ones(1),
        }  # fmt: skip
        losses.append(agent.update_q(batch, [()] * 3)[0]["loss/critic"].item())
    assert losses == [0.5 * (1 + 0.5 * 5) ** 2, 0.5 * (1 + 0.5 * 3) ** 2]


def test_dqn_target_network_updates_by_environment_steps(build: Build) -> None:
    loop = build(toy("dqn", **{"algo.target_every": 10, "algo.target_unit": "steps", "algo.tau": 1.0}))
    train(loop, 1)
    for _ in range(20):  # two steps and one update each
        loop.tick()
        same = equal([*loop.agent.target_network.parameters()], [*loop.agent.q.parameters()])
        assert same == (loop.steps % 10 == 0)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("algo", ["dqn", "dueling_dqn", "qr_dqn"])
def test_dqn_values_of_a_chain_equal_value_iteration(algo: str, double: bool, build: Build) -> None:
    """Six states in a row. One action goes left, one right, four stay. Leaving to the right is rewarded with 1."""
    state, action = torch.arange(6).repeat_interleave(6), torch.arange(6).repeat(6)
    move = (action == 1).int() - (action == 0).int()
    ended = (state == 5) & (action == 1)
    successor = (state + move).clamp(0, 5)
    exact = torch.zeros(6, 6)
    for _ in range(200):
        exact = (ended + 0.9 * ~ended * exact.amax(1)[successor]).view(6, 6)
    batch = {
        "obs": state, "next_obs": successor, "action": action, "reward": ended.float(),
        "n_steps": torch.ones(36), "terminated": ended.float(), "weight": torch.ones(36),
    }  # fmt: skip
    values = jobs([f"algo={algo}", "env=Taxi", "preset=none", "network=linear"])[0].values
    changes = {"algo.learning_rate": 0.03, "algo.double": double, "algo.gamma": 0.9, "algo.buffer.capacity": 36}
    changes |= {"algo.tau": 1.0, "algo.target_every": 25}
    quantiles = {"algo.critic.num_quantiles": 2} if algo == "qr_dqn" else {}
    falling = {"algo.schedule": {"learning_rate": {"linear": {"end": 0.0}}}}
    loop = build(put(values, changes | quantiles | falling))
    agent = loop.agent
    for i in range(1000):
        loop.begin_update(Context(i, i, i / 1000))
        agent.update(batch, Context(i, i, i / 1000))
    torch.testing.assert_close(agent.values(torch.arange(6)), exact, atol=1e-2, rtol=0)


@pytest.mark.parametrize("double", [False, True])
def test_dqn_target_ignores_illegal_actions(double: bool, build: Build) -> None:
    """Both networks value action 1 highest, but the successor's mask allows only action 0: 1 + 0.5 * 3."""
    changes = {
        "env.id": "rlrun/ProbeSpaces-v0",
        "env.kwargs": {"masks": "info"},
        "algo.critic.huber_delta": None,
        "algo.critic.members": 1,
    }
    agent = build(toy("dqn", **changes, **{"algo.gamma": 0.5, "algo.double": double})).agent
    with torch.no_grad():
        for param in (*agent.q.parameters(), *agent.target_network.parameters()):
            param.zero_()
        agent.q.output.bias.copy_(torch.tensor([1.0, 9.0, 0.0]))
        agent.target_network.module.output.bias.copy_(torch.tensor([3.0, 7.0, 0.0]))
    obs = {"obs": torch.zeros(1, 2), "action_mask": torch.tensor([[1, 0, 1]])}
    batch = {
        "obs": obs, "next_obs": obs, "action": torch.tensor([2]), "reward": torch.ones(1),
        "n_steps": torch.ones(1), "terminated": torch.zeros(1), "weight": torch.ones(1),
    }  # fmt: skip
    assert agent.update_q(batch, [()] * 3)[0]["loss/critic"].item() == pytest.approx(2.5**2 / 2)
