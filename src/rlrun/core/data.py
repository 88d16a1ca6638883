"""The run's buffer as an agent reads it."""

from typing import Any

from torch import Tensor

from rlrun.core.addon import Addons
from rlrun.types import Batch


class Data:
    """Read access to a replay buffer. Every batch is relabelled by the add-ons, like the batch of an update, so that
    its observations are those that the agent acts on.

    Flat indices are `row * num_envs + env` (`buffers/rows.py`); batches have them as `index`.
    """

    def __init__(self, buffer: Any, addons: Addons):
        self.buffer, self.addons = buffer, addons

    def __len__(self) -> int:
        return len(self.buffer)

    def all(self) -> Batch:
        """Returns every stored transition, oldest first; with `algo.loop=hybrid`, the collected ones first."""
        return self.addons.relabel(self.buffer.all())

    def since(self, flat_index: int) -> Batch:
        """Returns every collected transition from this flat index on, oldest first."""
        return self.addons.relabel(self.buffer.since(flat_index))

    def sample(self, size: int) -> Batch:
        """Returns a batch drawn as for updates."""
        return self.addons.relabel(self.buffer.sample(size))

    def of_action(self, action: int, size: int | None = None) -> Batch:
        """Returns transitions with this discrete action: `size` drawn ones, or all, oldest first."""
        return self.addons.relabel(self.buffer.of_action(action, size))

    def read(self, flat_index: Tensor) -> Batch:
        """Returns the transitions with these flat indices [batch]."""
        return self.addons.relabel(self.buffer.read(flat_index))

    def field(self, name: str, flat_index: Tensor) -> Tensor:
        """Returns one field as it is stored, at flat indices of any shape [...], such as "reward" or "obs.goal".

        Add-ons do not relabel it. Raises KeyError for a field that is not stored.
        """
        stored: Tensor = self.buffer.field(name, flat_index)
        return stored

    def steps_to_episode_end(self, flat_index: Tensor) -> Tensor:
        """Returns how many further steps of the same episode are stored after each flat index [batch]."""
        steps: Tensor = self.buffer.steps_to_episode_end(flat_index)
        return steps

    def episode_of(self, flat_index: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the flat indices of the first and the last stored step of the episode of each flat index [batch]."""
        first, last = self.buffer.episode_of(flat_index)
        return first, last

    @property
    def span(self) -> tuple[int, int]:
        """The flat index of the oldest transition that can be sampled, and the one after the newest."""
        first, last = self.buffer.span
        return first, last
