"""Discrete choices as vectors."""

import torch
from torch import Tensor


def one_hot(x: Tensor, size: int) -> Tensor:
    """Returns the one-hot vectors [..., size] float32 of integers [...] from 0 to size - 1.

    torch's own function reads the largest integer, which makes a GPU synchronise; this one may be used in kernels.
    """
    classes = torch.arange(size, device=x.device)
    return (x.unsqueeze(-1) == classes).float()
