"""Value-based agents with reward vectors: their targets beside those of one reward, and the weights they act by."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_continuous_sarsa import composed as sarsa
from torch import Tensor
from toys import Values, put, toy, train

from rlrun.agents.critics.reward_columns import expectation
from rlrun.core.loop import Loop
from rlrun.functional.distributions import Categorical
from rlrun.testing import check_acting, check_resuming
from rlrun.types import Batch, Context

Build = Callable[..., Loop]
CONTINUOUS = ("oac", "kl_sac", "continuous_sarsa", "iql")
DISCRETE = ("dqn", "soft_q")
ALGOS = (*CONTINUOUS, *DISCRETE)
SOFT = ("oac", "kl_sac", "continuous_sarsa", "soft_q")  # their critics have a column for the entropy
POINT: Values = {"env.id": "rlrun/PointRun-v0"}
COUNTER: Values = {
    "env.id": "rlrun/Counter-v0",
    "env.kwargs": {"length": 5, "factors": [1.0, -2.0]},
    "env.max_episode_steps": None,
}


def run(algo: str, reward_weights: list[float] | None, **changes: Any) -> Values:
    """Returns values of a small run with two critics and two rewards."""
    given = {"algo.reward_weights.weights": reward_weights, "algo.gamma": 0.9}
    given |= POINT if algo in CONTINUOUS else COUNTER
    if algo != "iql":  # which has two critics by default
        given["algo.critic.members"] = 2
    return toy(algo, **given | changes)


def networks(agent: Any) -> list[Any]:
    """Returns the critics and the target critics."""
    if agent.registered == "dqn":
        return [agent.q, agent.target_network.module]
    return [agent.critic, agent.target_critic.module]


def recorded(agent: Any, method: str, batch: Batch) -> Tensor:
    """Returns what a method of the agent's ensemble returns in one update."""
    found: list[Tensor] = []
    original = getattr(agent.ensemble, method)

    def record(*args: Any) -> Tensor:
        found.append(original(*args))
        return found[-1]

    setattr(agent.ensemble, method, record)
    agent.update(dict(batch), Context(updates=0, env_steps=0, progress=0.0))
    delattr(agent.ensemble, method)
    (result,) = found
    return result


def copy_weights(agent: Any, single: Any) -> None:
    """Gives the first column of an agent the weights of an agent with one reward. A column of entropies predicts 0."""
    given = dict(single.named_parameters())
    with torch.no_grad():
        for name, param in agent.named_parameters():
            source = given[name]
            if param.shape == source.shape:
                param.copy_(source)
                continue
            columns = param.unflatten(-1, (source.shape[-1], -1))
            columns[..., 0] = source
            if agent.registered in SOFT:
                columns[..., 2] = 0.0


@pytest.mark.parametrize("algo", ALGOS)
def test_targets_with_weights_1_and_0_are_those_of_one_reward(algo: str, build: Build) -> None:
    eager = {"trainer.engine": "eager"}
    wrappers = {"linear_reward": {"weights": [1.0, 0.0]}}
    loop: Any = train(build(run(algo, [1.0, 0.0], **eager)), 1)
    agent = loop.agent
    single: Any = build(run(algo, None, **eager, **{"env.wrappers": wrappers})).agent
    copy_weights(agent, single)
    for name, stream in single.named_children():
        if hasattr(stream, "generator"):
            stream.generator.set_state(getattr(agent, name).generator.get_state())
    one_reward = {name: value for name, value in loop.batch.items() if name != "reward_weights"}
    one_reward["reward"] = loop.batch["reward"][..., 0]
    if algo == "iql":  # V learns before the critics
        torch.testing.assert_close(agent.update_value(loop.batch)[1], single.update_value(one_reward)[1])
        copy_weights(agent, single)
        agent.value_optim.step = single.value_optim.step = Tensor.detach
    expected = recorded(single, "backup", one_reward)
    target = recorded(agent, "backup", loop.batch)
    first = target[..., 0]
    if algo in SOFT:
        first = first + target[..., 2]
    torch.testing.assert_close(first, expected)


@pytest.mark.parametrize("algo", ALGOS)
def test_a_negative_weight_makes_a_maximum_of_the_minimum(algo: str, build: Build) -> None:
    loop: Any = train(build(run(algo, [1.0, 1.0], **{"trainer.engine": "eager"})), 1)
    num_columns = 2 + (algo in SOFT)
    for second in (1.0, -1.0):
        for network in networks(loop.agent):
            for param in network.output.parameters():  # both rewards have the same predictions
                columns = param.detach().unflatten(-1, (-1, num_columns))
                columns[..., 1] = columns[..., 0]
        batch = loop.batch | {"reward_weights": torch.tensor([1.0, second])}
        first, other = recorded(loop.agent, "target_return", batch)[..., :2].unbind(-1)
        assert torch.equal(first, other) if second > 0 else (first < other).all()


@pytest.mark.parametrize("algo", ALGOS)
def test_runs_with_reward_vectors_resume_bit_for_bit(algo: str, build: Build) -> None:
    """Weights that are learned are those of the last update, also for acting."""
    values = run(algo, [2.0, -0.5])
    if algo in ("oac", "dqn", "soft_q"):
        learned = toy("sac_lagrangian")["algo"]["reward_weights"]
        values["algo"]["reward_weights"] = learned | {"thresholds": [None, 1.0], "learning_rate": 0.1}
    loop: Any = train(build(values), 4)
    assert loop.batch["reward"].shape[-1] == 2
    check_acting(loop)
    check_resuming(loop, build(values, begin=False))


@pytest.mark.parametrize("algo", ["c51", "qr_dqn", "rainbow", "r2d2"])
def test_variants_of_dqn_learn_a_column_for_every_reward(algo: str, build: Build) -> None:
    loop: Any = train(build(run(algo, [1.0, 0.5])), 2)
    assert loop.agent.action_values(loop.batch["obs"], loop.batch["action"]).shape[-2:] == (2, 2)


def test_dqn_chooses_the_action_of_the_highest_weighted_sum(build: Build) -> None:
    agent: Any = build(run("dqn", [1.0, 0.5])).agent
    z = torch.tensor([[[[3.0, 0.0], [0.0, 4.0]]], [[[2.0, 1.0], [1.0, 5.0]]]])  # [members, batch, actions, columns]
    agent.predict = lambda *args: z
    obs = torch.zeros(1, 2)
    for weights, values in (([1.0, 0.5], [2.0, 2.0]), ([1.0, 0.0], [2.0, 0.0]), ([1.0, -1.0], [1.0, -5.0])):
        agent.reward_weights.follow({"reward_weights": torch.tensor(weights)})
        assert agent.values(obs).tolist() == [values]
        assert agent.act(obs, {}, False)[0].tolist() == [0]
    agent.reward_weights.follow({"reward_weights": torch.tensor([0.0, 1.0])})
    assert agent.act(obs, {}, False)[0].tolist() == [1]


def test_dqn_target_has_the_action_of_the_highest_weighted_sum(build: Build) -> None:
    loop: Any = train(build(run("dqn", [1.0, -1.0])), 1)
    batch = loop.batch
    with torch.no_grad():
        loop.agent.target_network.module.output.bias[..., 1] += 9.0  # the second value of the first action
        first, second = loop.agent.target_network(batch["next_obs"]).unbind(-1)  # [members, batch, actions]
    first, second = first.amin(0), second.amax(0)
    choice = (first - second).argmax(-1, keepdim=True)
    assert not torch.equal(choice, (first + second).argmax(-1, keepdim=True))
    expected = torch.cat([first.gather(-1, choice), second.gather(-1, choice)], -1)
    torch.testing.assert_close(recorded(loop.agent, "target_return", batch), expected)


@pytest.mark.parametrize("algo", ["oac", "dqn", "soft_q"])
def test_agents_act_by_the_weights_of_their_last_update(algo: str, build: Build) -> None:
    loop: Any = train(build(run(algo, [2.0, -0.5])), 1)
    loop.agent.reward_weights.values.zero_()
    train(loop, 2)
    assert loop.agent.reward_weights.values.tolist() == [2.0, -0.5]


@pytest.mark.parametrize("algo", ["iql", "dqn", "soft_q"])
def test_each_component_has_its_own_discount(algo: str, build: Build) -> None:
    found = []
    for gammas in (None, [0.0, 0.9]):
        loop: Any = train(build(run(algo, [1.0, 1.0])), 1)
        agent = build(run(algo, [1.0, 1.0], **{"algo.reward_weights.gamma": gammas})).agent
        found.append(recorded(agent, "backup", loop.batch))
    one_discount, two_discounts = found
    assert torch.equal(two_discounts[..., 0], loop.batch["reward"][..., 0])
    assert not torch.equal(one_discount[..., 0], two_discounts[..., 0])
    assert torch.equal(two_discounts[..., 1:], one_discount[..., 1:])


def test_soft_q_policy_has_the_weighted_sum_and_the_entropy(build: Build) -> None:
    agent: Any = build(run("soft_q", [2.0, -0.5])).agent
    obs = torch.randn(4, 2)
    first, second, entropy = agent.critic(obs).unbind(-1)
    q = 2.0 * first.amin(0) - 0.5 * second.amax(0) + entropy.amin(0)
    expected = torch.softmax(q / agent.entropy.temperature, -1)
    torch.testing.assert_close(agent.distribution(obs).logits.softmax(-1), expected)


def test_oac_explores_towards_the_upper_bound_of_the_weighted_sum(build: Build) -> None:
    agent: Any = build(run("oac", [2.0, -0.5])).agent
    obs, mean = torch.randn(4, 3), torch.randn(4, 2, requires_grad=True)
    first, second, entropy = agent.critic(obs, torch.tanh(mean)).unbind(-1)
    q = 2.0 * first - 0.5 * second + entropy
    bound = q.mean(0) + agent.cfg.beta_ub * (q[0] - q[1]).abs() / 2
    (expected,) = torch.autograd.grad(bound.sum(), mean)
    torch.testing.assert_close(agent.upper_bound_gradient(obs, mean), expected)


def test_iql_columns_have_the_expectile_weights_of_the_weighted_advantage(build: Build) -> None:
    loop: Any = train(build(run("iql", [2.0, -0.5], **{"algo.expectile": 0.7})), 1)
    agent, batch = loop.agent, loop.batch
    with torch.no_grad():
        first, second = agent.target_critic(batch["obs"], batch["action"]).unbind(-1)
        target = torch.stack([first.amin(0), second.amax(0)], -1)
        errors = target - agent.value(batch["obs"])
        agent.value.output.bias += errors.mean(0)
        errors -= errors.mean(0)
    expected = errors[:, 0] * 2.0 - errors[:, 1] * 0.5
    assert (expected > 0).any() and (expected < 0).any()
    losses = [(0.7 if a > 0 else 0.3) * float((error**2).mean()) for a, error in zip(expected, errors, strict=True)]
    metrics, advantage = agent.update_value(batch)
    torch.testing.assert_close(advantage, expected)
    assert float(metrics["loss/value"]) == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_continuous_sarsa_learns_reward_vectors_from_rollouts(build: Build) -> None:
    changes = POINT | {"algo.reward_weights.weights": [2.0, -0.5], "algo.n_step": 3}
    loop: Any = train(build(put(sarsa("onpolicy"), changes)), 2)
    assert loop.agent.critic(loop.batch["obs"].flatten(0, 1), loop.batch["action"].flatten(0, 1)).shape[-1] == 3


def test_expectation_of_every_column() -> None:
    values = torch.randn(4, 3, 2)
    dist = Categorical(torch.randn(4, 3))
    by_hand = [expectation(dist, values[..., column]) for column in range(2)]
    torch.testing.assert_close(expectation(dist, values), torch.stack(by_hand, -1))
