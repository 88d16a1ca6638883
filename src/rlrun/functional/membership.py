"""Random subsets that are not stored: whether a number belongs follows from the number."""

import torch
from torch import Tensor

MULTIPLIERS = (0x2C1B3C6D, 0x297A2D39)  # of the `lowbias32` hash (Wellons 2018): products stay below 2^63


def belongs(number: Tensor, members: int, probability: float) -> Tensor:
    """1.0 where a number is in a member's subset, else 0.0; number [batch] int64 to [members, batch].

    Every pair is drawn independently with the probability, the same at every call.
    """
    member = torch.arange(1, members + 1, device=number.device).unsqueeze(-1)
    x = (number.unsqueeze(0) + member * 0x9E3779B1) & 0xFFFFFFFF
    for multiplier in MULTIPLIERS:
        x = ((x ^ (x >> 16)) * multiplier) & 0xFFFFFFFF
    x = x ^ (x >> 15)
    return (x.double() / 2**32 < probability).float()
