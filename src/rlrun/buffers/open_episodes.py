"""Rows of episodes that are still running, kept from rollout to rollout until the episodes end."""

from collections.abc import Iterator

from torch import Tensor

from rlrun.buffers.demo_lines import episode
from rlrun.buffers.demos import Demo
from rlrun.core.collector import check_ends
from rlrun.indexed import dense
from rlrun.nested import index, leaves
from rlrun.tensors import joined
from rlrun.types import Batch, Spec

KEYS = ("obs", "action", "reward", "next_obs", "terminated", "weight")


class OpenEpisodes:
    """Turns rollouts into whole episodes."""

    def __init__(self, spec: Spec):
        self.spec = spec
        self.open: list[list[Batch]] = []  # of each environment, the rows of its running episode in pieces
        self.begin()

    def begin(self) -> None:
        """Forgets all rows, because all environments begin new episodes."""
        self.open = [[] for _ in range(self.spec.num_envs)]

    def check(self) -> None:
        """Raises an exception of any type if the rows do not fit, because snapshots may be untrusted."""
        if len(self.open) != self.spec.num_envs:
            raise ValueError(f"rows of {len(self.open)} environments, not of {self.spec.num_envs}")
        for piece in (piece for pieces in self.open for piece in pieces):
            if piece.keys() != {*KEYS, "value"}:
                raise ValueError("the rows of a running episode have other entries")
            if len({len(leaf) for leaf in leaves(piece)}) != 1:
                raise ValueError("the rows of a running episode have entries of different lengths")

    def ended(self, rollout: Batch, value: Tensor) -> Iterator[tuple[Demo, float]]:
        """Yields each episode that ended in the rollout, with the highest value of its rows; value is [time, env].

        Yields no episode with a masked step, which interrupts it.
        """
        over = rollout["terminated"] | rollout["truncated"]
        kept = {key: dense(rollout[key]) for key in KEYS}
        kept["value"] = value
        for env, pieces in enumerate(self.open):
            begin = 0
            for end in (over[:, env].nonzero().flatten() + 1).tolist():
                pieces.append(index(kept, (slice(begin, end), env)))
                rows = joined(pieces)
                if (rows["weight"] > 0).all():
                    yield episode(rows), float(rows["value"].max())
                pieces.clear()
                begin = end
            if begin < len(over):
                pieces.append(index(kept, (slice(begin, None), env)))
            # the first piece of a running episode may be part of a rollout; the others are whole rollouts
            check_ends((len(pieces) - 1) * len(over), self.spec)
