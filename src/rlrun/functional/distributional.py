"""Distributions over returns on fixed atoms."""

from torch import Tensor


def project(
    position: Tensor,
    probability: Tensor,
    atoms: Tensor,
) -> Tensor:
    """Returns a distribution projected onto evenly spaced atoms, [batch, atoms] (arXiv 1707.06887, eq. 7).

        p_i = sum_j probability_j * [1 - |clip(position_j, v_min, v_max) - atom_i| / gap] clipped to at least 0

    position and probability [batch, n], atoms [atoms] in rising order. Probability between two atoms is split by
    distance; beyond the ends it goes to the last atom. The sum is kept, and the mean too where nothing is clipped.
    """
    v_min, v_max = atoms[0], atoms[-1]
    gap = atoms[1] - atoms[0]
    clipped = position.clamp(v_min, v_max).unsqueeze(-1)
    distance = (clipped - atoms).abs() / gap  # [batch, n, atoms]
    share = (1 - distance).clamp(min=0)
    return (probability.unsqueeze(-1) * share).sum(1)
