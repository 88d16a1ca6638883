"""Trees of tensors."""

import torch

from rlrun.tensors import joined


def test_joined_concatenates_batches_of_nested_observations() -> None:
    obs = {"x": torch.zeros(2, 3), "more": {"y": torch.zeros(2)}}
    others = {"x": torch.ones(1, 3), "more": {"y": torch.ones(1)}}
    both = joined([obs, others])
    assert torch.equal(both["x"], torch.tensor([[0.0] * 3, [0.0] * 3, [1.0] * 3]))
    assert torch.equal(both["more"]["y"], torch.tensor([0.0, 0.0, 1.0]))
