"""Means of the metrics of updates."""

import re
from typing import Any

import pytest
import torch

from rlrun.core.means import Means, over_epochs


def numbers(metrics: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def test_means_divide_each_metric_by_its_own_count() -> None:
    means = Means()
    for critic in (1.0, 2.0, 6.0):
        means.add({"critic": torch.tensor(critic)})
    means.add({"actor": torch.tensor(5.0)})
    assert numbers(means.drain()) == {"critic": 3.0, "actor": 5.0}
    assert means.drain() == {}


def test_means_do_not_hold_the_tensors_of_an_update() -> None:
    means, reused = Means(), torch.tensor(1.0)
    means.add({"critic": reused})
    reused.fill_(3.0)  # a recorded kernel returns the same tensor again
    means.add({"critic": reused})
    assert numbers(means.drain()) == {"critic": 2.0}


@pytest.mark.parametrize(("value", "shown"), [(0.5, "float"), (torch.zeros(3), "tensor [3]")])
def test_metric_that_is_not_a_0d_tensor_is_named(value: Any, shown: str) -> None:
    means = Means()
    means.add({"loss": torch.tensor(1.0)})
    with pytest.raises(TypeError, match=re.escape(f"the metric loss is a {shown}; update must return 0-d tensors")):
        means.add({"loss": value})


def test_means_of_a_resumed_run_continue() -> None:
    first, resumed = Means(), Means()
    first.add({"critic": torch.tensor(1.0)})
    resumed.load_state_dict(first.state_dict())
    resumed.add({"critic": torch.tensor(2.0)})
    assert numbers(resumed.drain()) == {"critic": 1.5}


@pytest.mark.parametrize("state", [{"critic": 1.0}, {"critic": ["a", 1]}, ["critic"]])
def test_means_refuse_untrusted_state_of_other_types(state: object) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        Means().set_extra_state(state)  # type: ignore[arg-type]


def test_epochs_give_means_and_the_losses_of_the_first_and_last() -> None:
    epochs = [{"critic": torch.tensor(loss), "kl": torch.tensor(0.1)} for loss in (3.0, 2.0, 1.0)]
    assert numbers(over_epochs(epochs)) == pytest.approx(
        {"critic": 2.0, "kl": 0.1, "critic_first_epoch": 3.0, "critic_last_epoch": 1.0}
    )
    assert numbers(over_epochs(epochs[:1])) == pytest.approx({"critic": 3.0, "kl": 0.1})
