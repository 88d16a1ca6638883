"""Projection and quantile regression, compared with numbers computed by hand and with slow loops."""

import pytest
import torch
from torch import Tensor

from rlrun.functional.distributional import project
from rlrun.functional.losses import quantile_huber

ATOMS = torch.tensor([-1.0, 0.0, 1.0, 2.0])


def spread(position: list[float], probability: list[float]) -> list[float]:
    return project(torch.tensor([position]), torch.tensor([probability]), ATOMS)[0].tolist()


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (1.0, [0, 0, 1, 0]),  # on an atom
        (0.25, [0, 0.75, 0.25, 0]),  # between two, shared by nearness
        (-1.0, [1, 0, 0, 0]),  # at the edges
        (2.0, [0, 0, 0, 1]),
        (-7.5, [1, 0, 0, 0]),  # beyond them
        (9.0, [0, 0, 0, 1]),
    ],
)
def test_project_splits_probability_between_neighbouring_atoms(position: float, expected: list[float]) -> None:
    assert spread([position], [1.0]) == expected


def test_project_adds_up_probabilities_on_one_atom() -> None:
    assert spread([0.5, 0.5, 1.0, 5.0], [0.5, 0.25, 0.125, 0.125]) == [0, 0.375, 0.5, 0.125]


def test_project_of_a_terminal_step_has_two_atoms() -> None:
    reward, discount = torch.tensor([[0.5], [0.5]]), torch.tensor([[0.0], [0.9]])
    probability = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).expand(2, -1)
    ended, went_on = project(reward + discount * ATOMS, probability, ATOMS)
    torch.testing.assert_close(ended, torch.tensor([0.0, 0.5, 0.5, 0.0]))
    # -0.4, 0.5, 1.4, 2.3 (beyond the end)
    slow = torch.tensor([0.1 * 0.4, 0.1 * 0.6 + 0.2 * 0.5, 0.2 * 0.5 + 0.3 * 0.6, 0.3 * 0.4 + 0.4])
    torch.testing.assert_close(went_on, slow)


def test_project_keeps_sum_and_mean() -> None:
    draw = torch.Generator().manual_seed(0)
    atoms = torch.linspace(-10, 10, 51)
    position = 20 * torch.rand(64, 51, generator=draw) - 10
    probability = torch.rand(64, 51, generator=draw).softmax(-1)
    moved = project(position, probability, atoms)
    torch.testing.assert_close(moved.sum(-1), torch.ones(64))
    torch.testing.assert_close((moved * atoms).sum(-1), (probability * position).sum(-1), atol=1e-5, rtol=0)
    torch.testing.assert_close(project(5 * position, probability, atoms).sum(-1), torch.ones(64))


def slow_quantile_huber(quantiles: Tensor, target: Tensor, delta: float) -> float:
    total, n = 0.0, len(quantiles)
    for i, quantile in enumerate(quantiles.tolist()):
        tau = (i + 0.5) / n
        for sample in target.tolist():
            u = sample - quantile
            loss = 0.5 * u * u if abs(u) <= delta else delta * (abs(u) - 0.5 * delta)
            total += abs(tau - (u < 0)) * loss / len(target)
    return total


@pytest.mark.parametrize("sum_over_quantiles", [True, False])
@pytest.mark.parametrize("delta", [0.1, 1.0, 100.0])
def test_quantile_huber_equals_its_double_sum(delta: float, sum_over_quantiles: bool) -> None:
    draw = torch.Generator().manual_seed(1)
    quantiles, target = torch.randn(3, 5, generator=draw), 3 * torch.randn(3, 7, generator=draw)
    loss = quantile_huber(quantiles, target, delta, sum_over_quantiles)
    slow = [slow_quantile_huber(*row, delta) for row in zip(quantiles, target, strict=True)]
    if not sum_over_quantiles:
        slow = [total / 5 / delta for total in slow]
    assert loss.tolist() == pytest.approx(slow, rel=1e-5)


def test_quantile_huber_of_one_quantile_is_half_the_huber_loss() -> None:
    quantile, target = torch.tensor([[1.0]]), torch.tensor([[3.5]])
    assert quantile_huber(quantile, target, 1.0).item() == 0.5 * 2.0


def test_quantile_huber_is_minimised_by_the_quantiles_of_the_samples() -> None:
    target = torch.arange(100.0).expand(1, -1)
    quantiles = torch.zeros(1, 4, requires_grad=True)
    optim = torch.optim.Adam([quantiles], 1.0)
    for _ in range(400):
        optim.zero_grad()
        quantile_huber(quantiles, target, 1.0).sum().backward()
        optim.step()
    assert quantiles[0].tolist() == pytest.approx([12.5, 37.5, 62.5, 87.5], abs=1.5)
