"""One-hot vectors, compared with torch's."""

import torch

from rlrun.functional.choices import one_hot


def test_one_hot_equals_torch() -> None:
    x = torch.tensor([[0, 3], [2, 1]])
    assert torch.equal(one_hot(x, 4), torch.nn.functional.one_hot(x, 4).float())
    assert one_hot(x, 4).dtype == torch.float32
