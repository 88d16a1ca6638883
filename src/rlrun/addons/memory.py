"""Memory of recurrent networks: it is put beside what they see, when they act and when they learn."""

from typing import Any

import torch
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.types import Batch


class Remember(Addon):
    """The agent gives its memory back with every action (`carry.memory`); the next observation brings it, 0 in a new
    episode. Rows of a rollout have the memory they were acted on with, successors the one after it."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size

    def observe(self, obs: Any, carry: Batch, explore: bool) -> Any:
        first = carry["first"]
        memory = carry.get("carry.memory", torch.zeros(len(first), self.size, device=first.device))
        return beside(obs, memory=memory * ~first.unsqueeze(-1))

    def relabel(self, batch: Batch) -> Batch:
        obs = beside(batch["obs"], memory=batch["memory"], first=batch["first"])
        return batch | {"obs": obs, "next_obs": beside(batch["next_obs"], memory=batch["carry.memory"])}


def beside(obs: Any, **more: Tensor) -> Batch:
    """An observation as a dict, with more in it."""
    return (obs if isinstance(obs, dict) else {"obs": obs}) | more
