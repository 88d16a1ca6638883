"""Critics of reward vectors: one value per component, weighted for the choice of actions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import Values, put, toy, train

from rlrun.agents.critics.ensemble import minimum, pessimistic
from rlrun.agents.policy.a2c import A2C
from rlrun.agents.policy.columns import columns, combined
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.testing import check_resuming
from rlrun.types import Bonus, Context

Build = Callable[..., Loop]
WEIGHTS = torch.tensor([2.0, -0.5])


def on_point_run(algo: str, **changes: Any) -> Values:
    return put(
        toy(algo),
        {"env.id": "rlrun/PointRun-v0", "algo.reward_weights.weights": WEIGHTS.tolist(), "algo.gamma": 0.9, **changes},
    )


def batch(rows: int = 6, discrete: bool = False) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    action = torch.randint(3, (rows,)) if discrete else torch.rand(rows, 2) * 2 - 1
    return {
        "obs": torch.randn(rows, 3), "next_obs": torch.randn(rows, 3), "action": action,
        "reward": torch.randn(rows, 2),
        "n_steps": torch.ones(rows), "terminated": torch.zeros(rows), "weight": torch.rand(rows),
        "reward_weights": WEIGHTS,
    }  # fmt: skip


def test_pessimistic_minimum_is_the_maximum_for_negative_weights() -> None:
    q = torch.tensor([[[1.0, 5.0]], [[2.0, 7.0]]])  # [members, batch, rewards]
    assert pessimistic(minimum, q, WEIGHTS).tolist() == [[1.0, 7.0]]
    assert pessimistic(lambda q: q.mean(0), q, WEIGHTS).tolist() == [[1.5, 6.0]]
    assert pessimistic(minimum, q, torch.tensor([1.0, 0.0])).tolist() == [[1.0, 5.0]]


def test_critics_have_a_column_for_every_reward_and_in_sac_one_of_weight_1_for_the_entropy(build: Build) -> None:
    sac, td3 = (build(on_point_run(algo)).agent.ensemble for algo in ("sac", "td3"))
    assert sac.column_weights(WEIGHTS).tolist() == [2.0, -0.5, 1.0]
    assert td3.column_weights(WEIGHTS).tolist() == [2.0, -0.5]
    assert build(toy("sac")).agent.ensemble.shape == ()


@pytest.mark.parametrize("algo", ["crossq", "mdq", "taac"])
def test_other_critics_refuse_reward_vectors(algo: str, build: Build) -> None:
    values = put(toy(algo), {"env.id": "rlrun/PointRun-v0"})
    with pytest.raises(ConfigError, match=f"algo={algo} needs one reward a step"):
        build(values)


def test_vector_sac_target_has_every_reward_and_the_entropy(build: Build) -> None:
    agent: Any = build(on_point_run("sac", **{"algo.entropy.initial_alpha": 0.2, "algo.critic.members": 3})).agent
    data, noise = batch(), torch.randn(6, 2)
    with torch.no_grad():
        action, log_prob = agent.actor(data["next_obs"]).sample(noise)
        members = agent.target_critic(data["next_obs"], action)  # [members, batch, columns]
        q = agent.critic(data["obs"], data["action"])
        errors = []
        for row in range(6):
            first, second, entropy = members[:, row].unbind(-1)
            target = [
                data["reward"][row, 0] + 0.9 * first.min(),
                data["reward"][row, 1] + 0.9 * second.max(),  # its weight is negative
                0.9 * (entropy.min() - 0.2 * log_prob[row]),
            ]
            errors.append(data["weight"][row] * 0.5 * ((q[:, row] - torch.stack(target)) ** 2).mean(-1).sum())
    loss = agent.update_critic(data, noise)[0]["loss/critic"]
    torch.testing.assert_close(loss, torch.stack(errors).mean())


def test_vector_sac_target_discounts_each_reward_by_its_own_gamma_and_the_entropy_by_gamma(build: Build) -> None:
    values = on_point_run("sac", **{"algo.reward_weights.gamma": [0.0, 0.5]})
    agent: Any = build(values).agent
    data, noise = batch(), torch.randn(6, 2)
    data["n_steps"] = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    data["terminated"] = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    action, log_prob = agent.actor(data["next_obs"]).sample(noise)
    q = agent.target_critic(data["next_obs"], action)
    cost = agent.entropy.alpha * log_prob
    target = agent.target_q(data, noise, agent.target_critic)
    for row in range(6):
        n, goes_on = data["n_steps"][row], 1 - data["terminated"][row]
        _, second, entropy = q[:, row].unbind(-1)
        expected = [
            data["reward"][row, 0],
            data["reward"][row, 1] + goes_on * 0.5**n * second.max(),
            goes_on * 0.9**n * (entropy.min() - cost[row]),
        ]
        torch.testing.assert_close(target[row], torch.stack(expected))


CHAIN_REWARDS = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [2.0, 3.0]])  # [state, component]; the last step terminates
CHAIN = {
    "obs": torch.eye(3), "next_obs": torch.eye(3).roll(-1, 0), "terminated": torch.tensor([False, False, True]),
    "weight": torch.ones(3), "n_steps": torch.ones(3),
}  # fmt: skip


def learned_by_td3(agent: Any, reward: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the values of the states of the chain under the first policy, [state, ...]."""
    action = agent.actor(CHAIN["obs"]).detach()
    steps = CHAIN | weights | {"reward": reward, "action": action, "terminated": CHAIN["terminated"].float()}
    for _ in range(300):
        agent.update_critic(steps, torch.zeros(3, 2))
        agent.target_critic.track()
    return agent.action_values(CHAIN["obs"], action).detach()


def learned_by_a2c(agent: Any, reward: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the values of the states of the chain, [state, ...]."""
    steps = CHAIN | {"reward": reward, "action": torch.zeros(3, 2), "log_prob": torch.zeros(3)}
    steps["truncated"] = torch.zeros(3, dtype=torch.bool)
    steps.pop("n_steps")
    rollout = {name: value.unsqueeze(1) for name, value in steps.items()} | weights
    for updates in range(120):
        agent.update(rollout, Context(updates, 3 * updates, 0.0))
    return agent.state_values(CHAIN["obs"]).detach()


LEARN = {"td3": learned_by_td3, "a2c": learned_by_a2c}
CHANGES: dict[str, Values] = {
    "td3": {"algo.tau": 1.0, "algo.target_noise": 0.0, "algo.critic_learning_rate": 0.003, "network.hidden": [64]},
    "a2c": {"algo.learning_rate": 0.01, "algo.optimizer": "adam", "algo.max_grad_norm": None, "network.hidden": [64]},
}


@pytest.mark.parametrize("algo", ["td3", "a2c"])
def test_components_with_their_own_discounts_have_the_values_of_two_runs_with_one_reward(
    algo: str, build: Build
) -> None:
    gammas = [0.0, 0.9]
    vector = build(on_point_run(algo, **CHANGES[algo], **{"algo.reward_weights.gamma": gammas})).agent
    together = LEARN[algo](vector, CHAIN_REWARDS, {"reward_weights": WEIGHTS})
    one = {"env.wrappers": {"linear_reward": {"weights": [1.0, 1.0]}}, "algo.reward_weights.weights": None}
    for i, gamma in enumerate(gammas):
        agent = build(on_point_run(algo, **CHANGES[algo], **one, **{"algo.gamma": gamma})).agent
        alone = LEARN[algo](agent, CHAIN_REWARDS[:, i], {})
        torch.testing.assert_close(together[:, i], alone, rtol=0.01, atol=0.0)
        first, second, third = CHAIN_REWARDS[:, i].tolist()
        value = [first + gamma * (second + gamma * third), second + gamma * third, third]
        torch.testing.assert_close(alone, torch.tensor(value), rtol=0.01, atol=0.0)


def test_an_agent_with_one_discount_refuses_those_of_components(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(A2C, "reward_discounts", False)
    line = r"^algo\.reward_weights\.gamma=\[0\.0, 0\.9\]: must be null, because algo=a2c has one discount .*gamma$"
    with pytest.raises(ConfigError, match=line):
        build(on_point_run("a2c", **{"algo.reward_weights.gamma": [0.0, 0.9]}))


def test_n_step_returns_of_a_run_have_the_discount_of_each_component(build: Build) -> None:
    values = on_point_run("sac", **{"algo.reward_weights.gamma": [0.0, 0.9], "algo.n_step": 3})
    loop: Any = build(values)
    train(loop, 4)
    stored = loop.buffer.stored()["reward"][:: loop.env.num_envs]
    summed = loop.buffer.all()["reward"][:: loop.env.num_envs]
    torch.testing.assert_close(summed[0, 0], stored[0, 0])
    torch.testing.assert_close(summed[0, 1], stored[0, 1] + 0.9 * stored[1, 1] + 0.81 * stored[2, 1])


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_runs_with_a_discount_of_each_component_resume_exactly(algo: str, build: Build) -> None:
    changes = {"algo.reward_weights.gamma": [0.0, 0.9], "env.normalize.kind": "reward"}
    loop, other = (build(on_point_run(algo, **changes)) for _ in range(2))
    normaliser: Any = next(iter(loop.addons))
    assert normaliser.gamma.tolist() == pytest.approx([0.0, 0.9])
    check_resuming(loop, other)


def test_vector_sac_actor_maximises_the_weighted_sum(build: Build) -> None:
    agent: Any = build(on_point_run("sac", **{"algo.entropy.initial_alpha": 0.2})).agent
    data, noise = batch(), torch.randn(6, 2)
    with torch.no_grad():
        action, log_prob = agent.actor(data["obs"]).sample(noise)
        first, second, entropy = agent.critic(data["obs"], action).unbind(-1)
        value = 2.0 * first.amin(0) - 0.5 * second.amax(0) + entropy.amin(0)
        expected = (data["weight"] * (0.2 * log_prob - value)).mean()
    torch.testing.assert_close(agent.update_actor(data, noise)["loss/actor"], expected)


def test_vector_td3_target_has_every_reward(build: Build) -> None:
    agent: Any = build(on_point_run("td3", **{"algo.target_noise": 0.0})).agent
    data = batch()
    with torch.no_grad():
        first, second = agent.target_critic(data["next_obs"], agent.target_actor(data["next_obs"])).unbind(-1)
        target = data["reward"] + 0.9 * torch.stack([first.amin(0), second.amax(0)], -1)
        errors = ((agent.critic(data["obs"], data["action"]) - target) ** 2).mean(-1).sum(0)
    loss = agent.update_critic(data, torch.zeros(6, 2))[0]["loss/critic"]
    torch.testing.assert_close(loss, (0.5 * data["weight"] * errors).mean())
    value = agent.critic(data["obs"], agent.actor(data["obs"]))[0] @ WEIGHTS
    torch.testing.assert_close(agent.update_actor(data)["loss/actor"], -(data["weight"] * value).mean().detach())


def test_vector_discrete_sac_target_has_every_reward(build: Build) -> None:
    values = {"env.id": "rlrun/Counter-v0", "env.kwargs": {"factors": [1.0, -2.0]}, "env.max_episode_steps": None}
    agent: Any = build(put(toy("discrete_sac"), values)).agent
    obs, action = torch.randn(6, 2), torch.randint(2, (6,))
    every = agent.critic(obs)  # [members, batch, actions, columns]
    assert torch.equal(agent.critic(obs, action), every[:, torch.arange(6), action])
    value, _ = agent.evaluate(obs, lambda obs: agent.critic(obs).amin(0), torch.zeros(0))
    chances = agent.actor(obs).logits.softmax(-1)
    torch.testing.assert_close(value, sum(chances[:, [a]] * every[:, :, a].amin(0) for a in range(2)))


def test_a2c_weights_reward_advantages_before_the_bonuses() -> None:
    one, two, bonus = torch.randn(3, 4)
    found = combined([one, two, bonus], (Bonus(0.9, True, 3.0),), WEIGHTS)
    torch.testing.assert_close(found, 2.0 * one - 0.5 * two + 3.0 * bonus)


def test_columns_of_the_environment_share_its_discount_or_have_their_own() -> None:
    rollout = {
        "reward": torch.arange(6.0).view(2, 1, 3), "terminated": torch.zeros(2, 1, dtype=torch.bool),
        "truncated": torch.zeros(2, 1, dtype=torch.bool), "weight": torch.ones(2, 1),
    }  # fmt: skip
    value = torch.zeros(2, 1, 3)
    found = columns(rollout, value, value, 0.9, (Bonus(0.5, True, 1.0),))
    assert [column.gamma for column in found] == [0.9, 0.9, 0.5]
    assert [column.reward.flatten().tolist() for column in found] == [[0, 3], [1, 4], [2, 5]]
    apart = columns(rollout | {"n_steps": torch.full((2, 1), 2.0)}, value, value, (0.0, 0.9), (Bonus(0.5, True, 1.0),))
    assert [column.gamma[0].item() for column in apart] == pytest.approx([0.0, 0.81, 0.25])


@pytest.mark.parametrize(
    "algo",
    [
        "sac",
        "oac",
        "kl_sac",
        "continuous_sarsa",
        "redq",
        "td3",
        "ddpg",
        "a2c",
        "ppo",
        "vpg",
        "vtrace",
        "ppo_critic_first",
    ],
)
def test_reward_weights_change_learning(algo: str, build: Build) -> None:
    one, other = (
        train(build(on_point_run(algo, **{"algo.reward_weights.weights": given})), 4) for given in (None, [1.0, 5.0])
    )
    params = [[*loop.agent.parameters()] for loop in (one, other)]
    assert any(not torch.equal(a, b) for a, b in zip(*params, strict=True))
