"""Predictions of the return: their values, losses and priorities."""

import math

import pytest
import torch

from rlrun.agents.critics.prediction import Categorical, Mean, Quantile, Rescaled
from rlrun.errors import ConfigError

REWARD, DISCOUNT = torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.0])  # the second row terminates


def test_mean_prediction_has_the_huber_loss_and_its_error_as_priority() -> None:
    loss, priority = Mean(Mean.Config(huber_delta=1.0)).loss(
        torch.tensor([[4.0], [0.5]]), torch.tensor([[2.0], [9.0]]), REWARD, DISCOUNT
    )
    assert priority.tolist() == [2.0, -0.5]
    assert loss.tolist() == [1.5, 0.125]


def test_rescaled_prediction_squashes_the_target() -> None:
    prediction = Rescaled(Rescaled.Config(huber_delta=None))
    squashed = lambda x: math.sqrt(x + 1) - 1 + 0.001 * x  # noqa: E731  # of positive numbers
    z, next_z = torch.tensor([[0.5], [0.5]]), torch.tensor([[squashed(14.0)], [squashed(3.0)]])
    assert prediction.value(next_z).tolist() == pytest.approx([14.0, 3.0], rel=1e-4)
    loss, priority = prediction.loss(z, next_z, REWARD, DISCOUNT)
    error = [0.5 - squashed(1 + 0.5 * 14), 0.5 - squashed(1.0)]
    assert priority.tolist() == pytest.approx(error, abs=1e-5)
    assert loss.tolist() == pytest.approx([0.5 * x * x for x in error], abs=1e-5)


def test_categorical_prediction_learns_the_projected_target() -> None:
    prediction = Categorical(Categorical.Config(num_atoms=3, v_min=0.0, v_max=2.0))
    next_z = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]).log()
    assert prediction.value(next_z).tolist() == pytest.approx([0.75, 1.7])
    # 1 + 0.5 * (0, 1, 2) = 1, 1.5, 2 with masses 0.5, 0.25, 0.25; and 1 alone
    target = torch.tensor([[0.0, 0.625, 0.375], [0.0, 1.0, 0.0]])
    loss, priority = prediction.loss(torch.zeros(2, 3), next_z, REWARD, DISCOUNT)
    entropy = [-(0.625 * math.log(0.625) + 0.375 * math.log(0.375)), 0.0]
    assert loss.tolist() == pytest.approx([math.log(3) - entropy[0], math.log(3)])
    assert torch.equal(loss, priority)
    learned, _ = prediction.loss((target + 1e-12).log(), next_z, REWARD, DISCOUNT)
    assert learned.tolist() == pytest.approx([0.0, 0.0], abs=1e-5)


def test_quantile_prediction_does_not_bootstrap_terminated_steps() -> None:
    prediction = Quantile(Quantile.Config(num_quantiles=2, huber_delta=1.0))
    z, next_z = torch.tensor([[1.0, 3.0], [1.0, 3.0]]), torch.tensor([[2.0, 8.0], [2.0, 8.0]])
    assert prediction.value(z).tolist() == [2.0, 2.0]
    loss, _ = prediction.loss(z, next_z, REWARD, DISCOUNT)
    # row 0, samples 2 and 5: the quantile 1 has 0.25 (0.5 + 3.5) / 2, the quantile 3 (0.25 0.5 + 0.75 1.5) / 2
    # row 1, sample 1: the quantile 1 is exact, the quantile 3 is too high by 2: 0.25 * 1.5
    assert loss.tolist() == pytest.approx([0.5 + 0.625, 0.375])


@pytest.mark.parametrize(("num_atoms", "v_min", "v_max"), [(1, 0.0, 1.0), (5, 1.0, 1.0), (5, 2.0, 1.0)])
def test_categorical_prediction_refuses_an_empty_support(num_atoms: int, v_min: float, v_max: float) -> None:
    with pytest.raises(ConfigError, match=r"algo\.critic"):
        Categorical(Categorical.Config(num_atoms=num_atoms, v_min=v_min, v_max=v_max))
