"""Spaces of the tensors of a distribution, for agents that store distributions in replay (`Learner.stores`)."""

import numpy as np
from gymnasium.spaces import Box

from rlrun.functional.distributions import to_tensors


def space_of(dist: object) -> dict[str, Box]:
    """Returns the space of one row of each of the tensors [rows, ...] that `to_tensors` names."""
    return {
        name: Box(-np.inf, np.inf, tuple(tensor.shape[1:]), np.float32) for name, tensor in to_tensors(dist).items()
    }
