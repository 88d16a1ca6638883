"""Random subsets that are not stored: a hash of an index decides whether the index belongs."""

import torch
from torch import Tensor

MULTIPLIERS = (0x2C1B3C6D, 0x297A2D39)  # of the `lowbias32` hash (Wellons 2018): products stay below 2^63
GOLDEN_RATIO = 0x9E3779B1  # 2^32 over the golden ratio: spreads the members' seeds
MASK_32_BITS = 0xFFFFFFFF


def belongs(
    number: Tensor,
    members: int,
    probability: float,
) -> Tensor:
    """Returns 1.0 where an index is in a member's subset, else 0.0; number [batch] int64 -> [members, batch].

    Every pair of index and member is drawn independently with the probability, the same at every call.
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
