"""Scalars as outputs of a network, compared with values computed by hand."""

import math

import pytest
import torch

from rlrun.functional.scalars import Plain, TwoHot, squash, unsquash


def test_squash_by_hand_and_unsquash_inverts_it() -> None:
    x = torch.tensor([0.0, 3.0, -8.0, 99.0])
    assert squash(x).tolist() == pytest.approx([0.0, 1.003, -2.008, 9.099])
    wide = torch.linspace(-500, 500, 101, dtype=torch.float64)
    torch.testing.assert_close(unsquash(squash(wide)), wide)


def test_two_hot_spreads_a_number_over_its_two_neighbours() -> None:
    code = TwoHot(2)
    value = float(unsquash(torch.tensor(0.25, dtype=torch.float64)))
    distribution = code.target_distribution(torch.tensor([0.0, value, -1e9, 1e9]))
    expected = [[0, 0, 1, 0, 0], [0, 0, 0.75, 0.25, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    torch.testing.assert_close(distribution, torch.tensor(expected), atol=1e-5, rtol=0)


def test_two_hot_mean_inverts_spread() -> None:
    code, numbers = TwoHot(20), torch.linspace(-300, 300, 41)
    torch.testing.assert_close(code.mean(code.target_distribution(numbers).log()), numbers, rtol=1e-3, atol=1e-2)


def test_scalar_losses_by_hand() -> None:
    assert Plain().loss(torch.tensor([[3.0]]), torch.tensor([1.0])).tolist() == [2.0]
    assert Plain().mean(torch.tensor([[3.0]])).tolist() == [3.0]
    uniform = TwoHot(2).loss(torch.zeros(1, 5), torch.tensor([0.7]))
    assert uniform.item() == pytest.approx(math.log(5))
