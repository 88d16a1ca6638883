"""Projection of distributions over returns onto fixed atoms (categorical distributional RL)."""

from torch import Tensor


def project(
    position: Tensor,
    probability: Tensor,
    atoms: Tensor,
) -> Tensor:
    """Returns a distribution projected onto evenly spaced atoms, [batch, atoms] (arXiv 1707.06887, eq. 7).

        p_i = sum_j probability_j * max(0, 1 - |clip(position_j, v_min, v_max) - atom_i| / gap)

    position and probability [batch, n], atoms [atoms] in ascending order. The probability of a position between two
    atoms is split by distance; positions outside [v_min, v_max] count as the nearest end. The projection preserves
    total probability, and also the mean if no position is clipped.
    """
    v_min, v_max = atoms[0], atoms[-1]
    gap = atoms[1] - atoms[0]
    clipped = position.clamp(v_min, v_max).unsqueeze(-1)
    distance = (clipped - atoms).abs() / gap  # [batch, n, atoms]
    share = (1 - distance).clamp(min=0)
    return (probability.unsqueeze(-1) * share).sum(1)
