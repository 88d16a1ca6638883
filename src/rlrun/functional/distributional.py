"""Distributions over returns on fixed atoms."""

from torch import Tensor


def project(position: Tensor, probability: Tensor, atoms: Tensor) -> Tensor:
    """A distribution moved onto evenly spaced atoms (arXiv 1707.06887, eq. 7): [batch, atoms].

    position, probability [batch, n]: where the mass lies and how much; atoms [atoms], rising. Mass between two atoms is
    shared by nearness, on an atom it stays there, beyond the ends it goes to the last one. The sum is kept, and the
    mean too where nothing lies beyond the ends.
    """
    gap = atoms[1] - atoms[0]
    distance = (position.clamp(atoms[0], atoms[-1]).unsqueeze(-1) - atoms).abs() / gap  # [batch, n, atoms]
    return (probability.unsqueeze(-1) * (1 - distance).clamp(min=0)).sum(1)
