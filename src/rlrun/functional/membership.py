"""Random subsets that need no storage: a hash of an index decides whether the subset contains the index."""

import torch
from torch import Tensor

# multipliers of the hash `prospector32` (Wellons 2018), but with shifts of 16, 16 and 15 bits, not of 15, 12 and 15
MULTIPLIERS = (0x2C1B3C6D, 0x297A2D39)
GOLDEN_RATIO = 0x9E3779B1  # 2^32 / golden ratio; a multiple of it is added to the indices for every ensemble member
MASK_32_BITS = 0xFFFFFFFF


def belongs(
    index: Tensor,
    members: int,
    probability: float,
) -> Tensor:
    """Returns 1.0 if the subset of an ensemble member contains an index, else 0.0; index [batch] int64 -> [members,
    batch].

    Each subset contains each index with the given probability, independently of all others. The result for a pair of
    member and index is the same at every call.
    """
    member = torch.arange(1, members + 1, device=index.device)
    member = member.unsqueeze(-1)
    x = index.unsqueeze(0) + member * GOLDEN_RATIO
    x = x & MASK_32_BITS
    for multiplier in MULTIPLIERS:
        x = x ^ (x >> 16)
        x = (x * multiplier) & MASK_32_BITS  # the product stays below 2^63
    x = x ^ (x >> 15)
    uniform = x.double() / 2**32
    return (uniform < probability).float()
