"""Values of reward vectors: critics have a column for each component, which are weighed only where actions are chosen.

`weights` [columns]; None where the reward is one number, and everything is as if there were no columns.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from rlrun.types import Batch

Join = Callable[[Tensor], Tensor]  # of the members of an ensemble: [members, ...] -> [...]


def columned(batch: Batch, extra: int = 0) -> Batch:
    """A batch for critics with columns. Extra ones, the last, are for what the agent pays itself; they weigh 1."""
    if "reward_weights" not in batch:
        return batch
    return batch | {
        "reward": F.pad(batch["reward"], (0, extra)),
        "reward_weights": F.pad(batch["reward_weights"], (0, extra), value=1.0),
        "terminated": batch["terminated"].unsqueeze(-1),
        "n_steps": batch["n_steps"].unsqueeze(-1),
    }


def signed(over: Join, weights: Tensor | None) -> Join:
    """The same join, which takes the least for the worst: of a column that counts negative it is the most."""
    if weights is None:
        return over
    sense = torch.where(weights < 0, -1.0, 1.0)
    return lambda q: sense * over(sense * q)


def in_last(x: Tensor, weights: Tensor | None) -> Tensor:
    """[batch] -> [batch, columns]: x in the last column, 0 in the others."""
    return x if weights is None else F.pad(x.unsqueeze(-1), (len(weights) - 1, 0))


def total(value: Tensor, weights: Tensor | None) -> Tensor:
    """[batch, columns] -> [batch]: what the actor maximises."""
    return value if weights is None else value @ weights
