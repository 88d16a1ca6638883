"""Prioritised replay by hand: probabilities, importance weights, and errors of sequences."""

import pytest
import torch

from rlrun.functional.priorities import importance_weight, of_ensemble, of_sequences, priority


def test_priority_is_a_power_of_the_error() -> None:
    found = priority(torch.tensor([-4.0, 1.0, 0.0]), alpha=0.5, epsilon=0.0)
    assert (found / found.sum()).tolist() == pytest.approx([2 / 3, 1 / 3, 0])
    assert priority(torch.tensor([5.0, 0.0]), alpha=0.0, epsilon=1e-5).tolist() == [1.0, 1.0], "uniform"
    assert (priority(torch.zeros(2), alpha=0.6, epsilon=1e-5) > 0).all(), "none is never drawn again"


def test_importance_weight_is_inverse_to_probability() -> None:
    """Four rows are drawn with probabilities 1/2, 1/4, 1/8 and 1/8; uniform would be 1/4."""
    probability = torch.tensor([0.5, 0.25, 0.125, 0.125])
    assert importance_weight(probability, 4, beta=1.0).tolist() == [0.5, 1.0, 2.0, 2.0]
    assert importance_weight(probability, 4, beta=0.5).tolist() == pytest.approx([0.5**0.5, 1.0, 2**0.5, 2**0.5])
    assert importance_weight(probability, 4, beta=0.0).tolist() == [1.0] * 4


def test_importance_weight_with_beta_1_corrects_the_mean() -> None:
    error = torch.tensor([8.0, 4.0, 2.0, 2.0], dtype=torch.float64)
    probability = priority(error, 1.0, 0.0) / priority(error, 1.0, 0.0).sum()
    weighted = (probability * importance_weight(probability, 4, 1.0) * error).sum()
    assert weighted.item() == pytest.approx(error.mean().item())


def test_sequence_priority_mixes_maximum_and_mean_error() -> None:
    error = torch.tensor([[1.0, 9.0], [3.0, 9.0], [50.0, 9.0]])
    weight = torch.tensor([[1.0, 0.0], [0.5, 0.0], [0.0, 0.0]])
    assert of_sequences(error, weight).tolist() == pytest.approx([0.9 * 3 + 0.1 * 2, 0.0])


def test_ensemble_error_is_the_root_mean_square_over_members_and_columns() -> None:
    q = torch.tensor([[1.0, 0.0], [4.0, -2.0]])
    assert of_ensemble(q).tolist() == pytest.approx([8.5**0.5, 2**0.5])
    columns = q.unsqueeze(-1).expand(2, 2, 3)
    target = torch.zeros(2, 3)
    target[:, 2] = torch.tensor([1.0, -2.0])
    by_hand = [((2 * 17 + 0 + 9) / 6) ** 0.5, ((2 * 4 + 4 + 0) / 6) ** 0.5]
    assert of_ensemble(columns - target).tolist() == pytest.approx(by_hand)
