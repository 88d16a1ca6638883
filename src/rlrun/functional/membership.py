"""Random subsets that need no storage: a hash of an index decides whether the subset contains the index."""

import torch
from torch import Tensor

MULTIPLIERS = (0x2C1B3C6D, 0x297A2D39)  # constants of the `lowbias32` hash (Wellons 2018); products stay below 2^63
GOLDEN_RATIO = 0x9E3779B1  # 2^32 / golden ratio; gives every member a different seed
MASK_32_BITS = 0xFFFFFFFF


def belongs(
    number: Tensor,
    members: int,
    probability: float,
) -> Tensor:
    """Returns 1.0 if the subset of a member contains an index, else 0.0; number [batch] int64 -> [members, batch].

    `number` holds the indices. Each member contains each index with the given probability, independently of all others.
    The result for a pair of member and index is the same at every call.
    """
    member = torch.arange(1, members + 1, device=number.device)
    member = member.unsqueeze(-1)
    x = number.unsqueeze(0) + member * GOLDEN_RATIO
    x = x & MASK_32_BITS
    for multiplier in MULTIPLIERS:
        x = x ^ (x >> 16)
        x = (x * multiplier) & MASK_32_BITS
    x = x ^ (x >> 15)
    uniform = x.double() / 2**32
    return (uniform < probability).float()
