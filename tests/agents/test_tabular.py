"""Tabular agents: updates computed by hand."""

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from toys import toy, train

from rlrun.agents.tabular.dyna_q import DynaQ
from rlrun.agents.tabular.expected_sarsa import ExpectedSARSA
from rlrun.agents.tabular.model import TabularModel
from rlrun.agents.tabular.q_learning import QLearning
from rlrun.agents.tabular.sarsa import SARSA
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.functional.tabular import move, random_argmax, value_iteration
from rlrun.types import Context, Spec

VALUES = {
    "gamma": 0.5, "learning_rate": 0.25, "double": False, "initial_value": 0.0,
    "epsilon": 0.2,
}  # fmt: skip
CTX = Context(0, 0, 0.0)


def agent(cls, num_envs=1, start=0, **changes):
    spec = Spec(Discrete(3, start=start), Discrete(2), num_envs)
    cfg = SimpleNamespace(**VALUES | changes)
    return cls(cfg, spec, Parts(0, torch.device("cpu"), {}, spec))


def rollout(*rows):
    """Returns a rollout; each vector step is a list of rows (obs, action, reward, next_obs, terminated, truncated)."""
    names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
    batch = {name: torch.tensor([[row[i] for row in rows]]) for i, name in enumerate(names)}
    return batch | {"reward": batch["reward"].float(), "weight": torch.ones(1, len(rows))}


def test_q_learning_moves_one_value_towards_the_greedy_target():
    learner = agent(QLearning)
    learner.q[0] = torch.tensor([[1.0, 2.0], [3.0, 5.0], [0.0, 0.0]])
    learner.update(rollout((0, 1, 1.0, 1, False, False)), CTX)
    assert learner.q[0, 0].tolist() == [1.0, 2.0 + 0.25 * (1 + 0.5 * 5 - 2)]


def test_q_learning_breaks_ties_at_random_when_it_explores():
    learner = agent(QLearning, num_envs=1000, epsilon=0.0)
    actions, _ = learner.act(torch.zeros(1000, dtype=torch.int64), {}, explore=True)
    assert 400 < actions.sum() < 600


@pytest.mark.parametrize(("terminated", "truncated", "target"), [(True, False, 1.0), (False, True, 3.5)])
def test_q_learning_bootstraps_truncated_but_not_terminated_steps(terminated, truncated, target):
    for cls in (QLearning, ExpectedSARSA):
        learner = agent(cls, epsilon=0.0)
        learner.q[0, 1] = torch.tensor([3.0, 5.0])
        learner.update(rollout((0, 1, 1.0, 1, terminated, truncated)), CTX)
        assert learner.q[0, 0, 1].item() == 0.25 * target


def test_q_learning_ignores_masked_steps():
    for cls in (QLearning, SARSA):
        learner = agent(cls, trace_lambda=0.5)
        batch = rollout((0, 1, 1.0, 1, False, False))
        batch["weight"].zero_()
        learner.update(batch, CTX)
        learner.update(batch, CTX)
        assert not learner.q.any()


def test_q_learning_counts_states_from_the_start_of_the_space():
    learner = agent(QLearning, start=7)
    learner.update(rollout((7, 0, 1.0, 9, True, False)), CTX)
    assert learner.q[0].tolist() == [[0.25, 0], [0, 0], [0, 0]]


def test_q_learning_averages_simultaneous_visits_over_their_orders():
    start, targets, rate = 10.0, (1.0, 4.0, -2.0), 0.4
    ends = []
    for order in permutations(targets):
        q = start
        for target in order:
            q += rate * (target - q)
        ends.append(q)
    table = torch.tensor([7.0, start])
    move(table, torch.tensor([1, 1, 1]), torch.tensor(targets), torch.tensor(rate), torch.ones(3))
    assert table.tolist() == pytest.approx([7.0, np.mean(ends)])


def test_q_learning_never_overshoots_by_simultaneous_visits():
    table = torch.zeros(1)
    move(table, torch.zeros(64, dtype=torch.int64), torch.ones(64), torch.tensor(0.5), torch.ones(64))
    assert table.item() == pytest.approx(1.0) and table.item() <= 1.0


def test_expected_sarsa_target_is_the_mean_over_the_policy():
    learner = agent(ExpectedSARSA)
    learner.q[0, 1] = torch.tensor([3.0, 5.0])
    learner.update(rollout((0, 0, 1.0, 1, False, False)), CTX)
    expected = 0.9 * 5 + 0.1 * 3
    assert learner.q[0, 0, 0].item() == pytest.approx(0.25 * (1 + 0.5 * expected))


def test_double_q_learning_values_with_the_other_table():
    learner = agent(QLearning, double=True)
    learner.q[0, 1], learner.q[1, 1] = torch.tensor([3.0, 5.0]), torch.tensor([7.0, 1.0])
    step = {"pair": torch.tensor([0]), "reward": torch.ones(1), "next_state": torch.tensor([1])}
    step |= {"terminated": torch.tensor([False]), "weight": torch.ones(1)}
    learner.update_q(step, torch.tensor([0]))
    assert learner.q[:, 0, 0].tolist() == [0.25 * (1 + 0.5 * 1.0), 0.0]
    learner.update_q(step, torch.tensor([1]))
    assert learner.q[1, 0, 0].item() == 0.25 * (1 + 0.5 * 3.0)


def test_sarsa_target_uses_the_executed_action():
    learner = agent(SARSA, trace_lambda=0.0)
    learner.q[0, 1] = torch.tensor([3.0, 5.0])
    learner.update(rollout((0, 0, 1.0, 1, False, False)), CTX)
    assert not learner.q[0, 0].any()
    learner.update(rollout((1, 0, 0.0, 2, True, False)), CTX)
    assert learner.q[0, 0].tolist() == [0.25 * (1 + 0.5 * 3.0), 0.0]


def sarsa_by_the_book(steps, gamma, rate, decay):
    """SARSA(lambda) by Sutton and Barto's loop. steps: episodes of (state, action, reward) that all terminate."""
    q = np.zeros((3, 2))
    for episode in steps:
        traces = np.zeros_like(q)
        for t, (state, action, reward) in enumerate(episode):
            after = q[episode[t + 1][:2]] if t + 1 < len(episode) else 0.0
            error = reward + gamma * after - q[state, action]
            traces[state, action] += 1
            q += rate * error * traces
            traces *= gamma * decay
    return q


@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_sarsa_lambda_traces_equal_those_of_sutton_and_barto(decay):
    episodes = [[(0, 0, 1.0), (1, 1, -2.0), (0, 0, 0.5), (2, 1, 3.0)], [(1, 1, 1.0), (0, 0, 4.0)]]
    learner = agent(SARSA, trace_lambda=decay)
    for episode in episodes:
        for t, (state, action, reward) in enumerate(episode):
            last = t + 1 == len(episode)
            after = 0 if last else episode[t + 1][0]
            learner.update(rollout((state, action, reward, after, last, False)), CTX)
    learner.update(rollout((0, 0, 0.0, 0, True, False)), CTX)
    assert learner.q[0].flatten().tolist() == pytest.approx(sarsa_by_the_book(episodes, 0.5, 0.25, decay).ravel())


def test_q_learning_breaks_ties_at_random():
    noise = torch.rand(4000, 3, generator=torch.Generator().manual_seed(0))
    counts = random_argmax(torch.tensor([1.0, 2.0, 2.0]).expand(4000, 3), noise).bincount(minlength=3)
    assert counts[0] == 0 and abs(counts[1] - 2000) < 4 * 32


def test_tabular_model_stores_state_0_and_samples_visited_pairs():
    model = TabularModel(6)
    pair = torch.tensor([4, 1])
    step = {"pair": pair, "reward": torch.tensor([2.0, 3.0]), "next_state": torch.tensor([0, 2])}
    model.add(step | {"terminated": torch.tensor([False, True]), "weight": torch.ones(2)})
    drawn = model.sample(torch.linspace(0, 0.999, 100))
    assert drawn.bincount(minlength=6).tolist() == [0, 50, 0, 0, 50, 0]
    known = model.steps(torch.tensor([4]))
    assert (known["reward"].item(), known["next_state"].item(), known["terminated"].item()) == (2.0, 0, False)


def test_prioritized_sweeping_propagates_a_reward_along_the_chain():
    learner = agent(DynaQ, real_updates=True, planning_steps=3, prioritized=True, start_plan=0, learning_rate=1.0)
    for row in [(0, 0, 0.0, 1, False, False), (1, 0, 0.0, 2, False, False), (2, 0, 8.0, 0, True, False)]:
        learner.update(rollout(row), CTX)
    assert learner.q[0, :, 0].tolist() == [2.0, 4.0, 8.0]


def test_dyna_q_plans_from_start_plan_on():
    learner = agent(DynaQ, real_updates=True, planning_steps=1, prioritized=True, start_plan=10, learning_rate=1.0)
    for row in [(1, 0, 8.0, 0, True, False), (0, 0, 0.0, 1, False, False), (0, 1, 0.0, 1, False, False)]:
        learner.update(rollout(row), Context(0, 9, 0.0))
    learner.q.zero_()
    learner.update(rollout((2, 0, 0.0, 2, False, False)), Context(0, 9, 0.0))
    assert not learner.q.any(), "9 steps are too few"
    learner.update(rollout((2, 0, 0.0, 2, False, False)), Context(0, 10, 0.0))
    assert learner.q[0, 1, 0] == 8.0


def test_tabular_planning_learns_from_the_model_alone():
    """A chain of three states; real steps change no value, and planning reaches the solution 8, 4, 2."""
    chain = [(0, 0, 0.0, 1, False, False), (1, 0, 0.0, 2, False, False), (2, 0, 8.0, 0, True, False)]
    learner = agent(DynaQ, real_updates=False, planning_steps=3, prioritized=True, start_plan=5, learning_rate=1.0)
    for row in chain:
        assert learner.update(rollout(row), Context(0, 4, 0.0)) == {}
    assert not learner.q.any()
    metrics = learner.update(rollout(chain[0]), Context(0, 5, 0.0))
    assert learner.q[0, :, 0].tolist() == [2.0, 4.0, 8.0] and metrics["loss/td_error"] == 2.0


def test_value_iteration_equals_the_solution_of_the_linear_equations():
    generator = torch.Generator().manual_seed(1)
    transition = torch.rand(4, 3, 4, generator=generator, dtype=torch.float64)
    transition /= transition.sum(-1, keepdim=True)
    reward = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    value = value_iteration(transition, reward, gamma=0.9)
    best = (reward + 0.9 * transition @ value).argmax(-1)
    rows = torch.arange(4)
    exact = torch.linalg.solve(torch.eye(4) - 0.9 * transition[rows, best], reward[rows, best])
    assert value.tolist() == pytest.approx(exact.tolist(), abs=1e-8)
    assert value_iteration(transition, reward, horizon=1).tolist() == reward.amax(-1).tolist()
    with pytest.raises(ValueError, match="do not converge in 100,000 sweeps"):
        value_iteration(torch.ones(1, 1, 1), torch.ones(1, 1))


def test_q_learning_refuses_box_observations(build):
    with pytest.raises(ConfigError, match="algo=q_learning needs Discrete observations"):
        build(toy("q_learning", **{"env.id": "CartPole-v1"}))
    wrap = {"bins": 3, "low": [-2.4, -3.0, -0.2, -3.0], "high": [2.4, 3.0, 0.2, 3.0]}
    loop = build(toy("q_learning", **{"env.id": "CartPole-v1", "env.wrappers": {"discretize": wrap}}))
    assert train(loop, 30).agent.q.shape == (1, 81, 2)


def test_q_learning_rate_follows_its_schedule(build):
    loop = build(toy("q_learning", **{"algo.schedule": {"learning_rate": {"linear": {"end": 0.0}}}}))
    for progress in (0.0, 0.5, 0.75):
        loop.begin_update(Context(0, 0, progress))
        assert loop.agent.rate == pytest.approx(0.01 * (1 - progress))
