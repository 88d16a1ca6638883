"""Conversion of discrete choices to vectors."""

import torch
from torch import Tensor


def one_hot(x: Tensor, size: int) -> Tensor:
    """Returns one-hot vectors [..., size] float32 of integers [...] between 0 and size - 1.

    Kernels cannot use `F.one_hot`, which reads the largest value on the CPU and so waits for a GPU.
    """
    classes = torch.arange(size, device=x.device)
    return (x.unsqueeze(-1) == classes).float()
