"""Planners on costs with known optima."""

import pytest
import torch
from torch import Tensor

from rlrun.functional.planning import (
    ActionPlan,
    cem,
    chosen,
    correlated,
    mean_over_copies,
    mppi,
    random_shooting,
    shifted,
)

LOW, HIGH = -torch.ones(1), torch.ones(1)
HORIZON = 20
SEEDS = range(20)


class Quadratic:
    """The squared distance of a sequence of 20 numbers to an optimum inside of the limits."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)
        self.optimum = 1.6 * torch.rand(HORIZON, 1, generator=self.generator) - 0.8

    def __call__(self, actions: Tensor) -> Tensor:
        return ((actions - self.optimum) ** 2).sum((-1, -2))

    def uniform(self, candidates: int) -> Tensor:
        return torch.rand(1, candidates, HORIZON, 1, generator=self.generator)

    def normal(self, iterations: int, candidates: int) -> Tensor:
        return torch.randn(iterations, 1, candidates, HORIZON, 1, generator=self.generator)


def refined(cost: Quadratic, iterations: int, start: Tensor | None = None, keep: int = 0) -> ActionPlan:
    mean = torch.zeros(1, HORIZON, 1) if start is None else start
    var = torch.ones(1, HORIZON, 1)
    return cem(cost, mean, var, cost.normal(iterations, 400), LOW, HIGH, elites=50, tau=0.9, epsilon=0.01, keep=keep)


def mean_cost(actions: list[tuple[Quadratic, Tensor]]) -> float:
    return sum(float(cost(sequence)) for cost, sequence in actions) / len(actions)


def test_random_shooting_comes_nearer_to_the_optimum_with_more_candidates() -> None:
    costs = []
    for candidates in (10, 100, 1000):
        problems = [Quadratic(seed) for seed in SEEDS]
        found = [(cost, random_shooting(cost, cost.uniform(candidates), LOW, HIGH, 1)) for cost in problems]
        costs.append(mean_cost(found))
    assert costs == sorted(costs, reverse=True) and costs[0] - costs[2] > 2


def test_cem_beats_random_shooting_with_as_many_evaluations() -> None:
    problems = [Quadratic(seed) for seed in SEEDS]
    shot = mean_cost([(cost, random_shooting(cost, cost.uniform(2000), LOW, HIGH, 1)) for cost in problems])
    planned = mean_cost([(cost, refined(cost, 5).actions) for cost in problems])
    assert shot >= 3 and planned <= 0.1


def test_a_plan_that_begins_with_the_last_one_needs_fewer_iterations() -> None:
    cold, warm = [], []
    for seed in SEEDS:
        cost = Quadratic(seed)
        last = refined(cost, 5).mean
        cost.optimum = torch.cat([cost.optimum[1:], cost.optimum[-1:]])
        cold.append((cost, refined(cost, 3).actions))
        warm.append((cost, refined(cost, 1, shifted(last)).actions))
    assert mean_cost(warm) < mean_cost(cold)


def test_kept_elites_act_with_the_cheapest_candidate() -> None:
    cost = Quadratic(0)
    seen: list[Tensor] = []

    def remembers(actions: Tensor) -> Tensor:
        seen.append(actions)
        return cost(actions)

    noise = cost.normal(3, 40)
    start = torch.zeros(1, HORIZON, 1), torch.ones(1, HORIZON, 1)
    plan = cem(remembers, *start, noise, LOW, HIGH, elites=10, tau=0.9, epsilon=0.0, keep=3)
    assert [len(actions[0]) for actions in seen] == [40, 44, 44], "three elites and the mean are candidates again"
    best = seen[1][:, cost(seen[1]).argsort(1)[0, :3]]
    assert torch.equal(seen[2][:, 40:43], best)
    assert torch.equal(plan.actions, seen[2][:, cost(seen[2]).argmin(1)[0]][:, :])
    assert float(cost(plan.actions)) == min(float(cost(actions).min()) for actions in seen)


def test_mean_and_variance_move_towards_the_elites() -> None:
    noise = torch.tensor([-2.0, -0.5, 0.0, 0.25]).view(1, 1, 4, 1, 1)

    def cost(actions: Tensor) -> Tensor:
        return (actions[..., 0, 0] - 1).abs()

    plan = cem(cost, torch.zeros(1, 1, 1), torch.ones(1, 1, 1), noise, LOW, HIGH, 2, tau=0.5, epsilon=0.0, keep=0)
    assert plan.mean.item() == pytest.approx(0.5 * 0.125)
    assert plan.var.item() == pytest.approx(0.5 * 1 + 0.5 * 0.125**2)


def test_candidates_are_within_the_limits() -> None:
    seen: list[Tensor] = []

    def cost(actions: Tensor) -> Tensor:
        seen.append(actions)
        return -actions.sum((-1, -2))

    zeros, noise = torch.zeros(2, 5, 1), 3 * torch.randn(4, 1, 30, 5, 1)
    plan = cem(cost, zeros, zeros + 1, noise, LOW, HIGH, 5, tau=0.9, epsilon=0.0, keep=2)
    mppi(cost, zeros, zeros + 1, noise, LOW, HIGH, 5, temperature=0.5, min_std=0.1, max_std=2.0)
    random_shooting(cost, torch.rand(1, 30, 5, 1), LOW / 2, HIGH, 2)
    assert all((actions.abs() <= 1).all() for actions in seen) and (seen[-1] >= -0.5).all()
    assert (plan.mean <= 1).all()


def test_rows_do_not_change_each_other_and_stop_by_themselves() -> None:
    problems = [Quadratic(seed) for seed in range(3)]
    noise = problems[0].normal(6, 60)
    optima = torch.stack([cost.optimum for cost in problems])

    def cost(actions: Tensor) -> Tensor:
        return ((actions - optima.unsqueeze(1)) ** 2).sum((-1, -2))

    var = torch.tensor([1.0, 0.01, 0.3]).view(3, 1, 1).expand(3, HORIZON, 1)
    rules = {"elites": 10, "tau": 0.9, "epsilon": 0.05, "keep": 2}
    together = cem(cost, torch.zeros(3, HORIZON, 1), var, noise, LOW, HIGH, **rules)  # type: ignore[arg-type]
    for row, own in enumerate(problems):
        start = torch.zeros(1, HORIZON, 1), var[row : row + 1]
        alone = cem(own, *start, noise, LOW, HIGH, **rules)  # type: ignore[arg-type]
        for whole, part in zip(together, alone, strict=True):
            assert torch.equal(whole[row : row + 1], part)
    first = cem(cost, torch.zeros(3, HORIZON, 1), var, noise[:1], LOW, HIGH, **rules)  # type: ignore[arg-type]
    assert torch.equal(together.mean[1], first.mean[1]), "no variance exceeds epsilon after one iteration"
    assert not torch.equal(together.mean[0], first.mean[0])


def test_path_integrals_weight_elites_by_their_cost() -> None:
    noise = torch.tensor([-1.0, 0.0, 0.5, 1.0]).view(1, 1, 4, 1, 1)

    def cost(actions: Tensor) -> Tensor:
        return 4 * (actions[..., 0, 0] - 1).abs()

    plan = mppi(cost, torch.zeros(1, 1, 1), torch.ones(1, 1, 1), noise, LOW, HIGH, 2, 0.5, min_std=0.01, max_std=2.0)
    weight = torch.tensor([0.0, -0.5 * 2.0]).softmax(0)
    mean = weight[0] * 1.0 + weight[1] * 0.5
    assert plan.mean.item() == pytest.approx(mean.item())
    var = weight[0] * (1.0 - mean) ** 2 + weight[1] * (0.5 - mean) ** 2
    assert plan.var.item() == pytest.approx(var.item())
    problems = [Quadratic(seed) for seed in SEEDS]
    start = torch.zeros(1, HORIZON, 1), torch.ones(1, HORIZON, 1)
    found = [(cost, mppi(cost, *start, cost.normal(5, 400), LOW, HIGH, 50, 2.0, 0.05, 2.0)) for cost in problems]
    assert mean_cost([(cost, plan.actions) for cost, plan in found]) < 0.5  # random shooting: 3.3
    wide = mppi(cost, *start, problems[0].normal(1, 4), LOW, HIGH, 2, 0.5, min_std=1.5, max_std=2.0)
    assert torch.allclose(wide.var, torch.tensor(1.5**2)), "the standard deviation has a lower bound"
    narrow = mppi(cost, *start, problems[0].normal(1, 4), LOW, HIGH, 2, 0.5, min_std=0.01, max_std=0.05)
    assert (narrow.var <= 0.05**2 + 1e-8).all(), "and an upper one"


def test_a_shifted_plan_ends_with_its_mean_action() -> None:
    plan = torch.tensor([1.0, 2.0, 6.0]).view(1, 3, 1)
    assert shifted(plan).flatten().tolist() == [2.0, 6.0, 3.0]


def test_correlated_noise_has_its_correlation_and_unit_variance() -> None:
    noise = correlated(torch.randn(4000, 8, 2, generator=torch.Generator().manual_seed(0)), 0.8)
    assert torch.allclose(noise.std(0), torch.ones(8, 2), atol=0.05)
    pairs = (noise[:, 1:] * noise[:, :-1]).mean((0, 2))
    assert torch.allclose(pairs, torch.full((7,), 0.8), atol=0.05)


def test_returns_are_averaged_over_members_and_particles() -> None:
    returns = torch.arange(2.0 * 3 * 4 * 5).view(2, -1)
    expected = returns.view(2, 3, 4, 5).mean((0, 3))
    assert torch.equal(mean_over_copies(returns, 3, 4), expected)
    candidates = torch.arange(6.0).view(1, 3, 2, 1)
    assert chosen(candidates, torch.tensor([[2, 0]])).flatten().tolist() == [4.0, 5.0, 0.0, 1.0]
