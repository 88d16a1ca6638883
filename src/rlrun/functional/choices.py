"""Conversion of discrete choices to vectors."""

import torch
from torch import Tensor


def one_hot(x: Tensor, size: int) -> Tensor:
    """Returns one-hot vectors [..., size] float32 of integers [...] between 0 and size - 1.

    Unlike torch's own function, which reads values on the host and so synchronises a GPU, it may be used in kernels.
    """
    classes = torch.arange(size, device=x.device)
    return (x.unsqueeze(-1) == classes).float()
