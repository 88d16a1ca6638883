"""Choices as vectors."""

import torch
from torch import Tensor


def one_hot(x: Tensor, size: int) -> Tensor:
    """[...] numbers from 0 to size - 1 to [..., size] float32.

    Unlike torch's it asks nothing of the device, so a kernel may call it.
    """
    return (x.unsqueeze(-1) == torch.arange(size, device=x.device)).float()
