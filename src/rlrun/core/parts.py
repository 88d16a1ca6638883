"""What an agent is built from: torsos of the chosen network, random streams, other agents."""

from typing import Any

import torch
from gymnasium import Space
from torch import nn

from rlrun import registry
from rlrun.core.random import Stream
from rlrun.networks.recurrent import Memory
from rlrun.types import Spec


class Parts:
    """Handed to every agent's constructor. Knows the run's seed, device and network, so that agents need not."""

    def __init__(self, seed: int, device: torch.device, network: dict[str, Any], spec: Spec, scope: str = "agent"):
        self.seed, self.device, self.network, self.spec, self.scope = seed, device, network, spec, scope
        self.memory = Memory()

    def torso(self, inputs: tuple[str | Space, ...] = ("obs",), members: int | None = None) -> nn.Module:
        """The chosen network over "obs", "action" or spaces of the agent's own: forward(*inputs) -> [batch, features],
        or with members [members, batch, features]. Its `features` says how many."""
        named = {"obs": self.spec.obs, "action": self.spec.action}
        spaces = [named[part] if isinstance(part, str) else part for part in inputs]
        torso: nn.Module = registry.build("network", self.network, spaces, members, path="network")
        self.memory.add(torso)
        return torso

    def stream(self, name: str) -> Stream:
        """Random numbers for one purpose of this agent."""
        return Stream(self.seed, f"{self.scope}.{name}", self.device)

    def agent(self, values: dict[str, Any], name: str) -> nn.Module:
        """Another agent inside this one; `name` keeps their random numbers apart."""
        parts = Parts(self.seed, self.device, self.network, self.spec, f"{self.scope}.{name}")
        return registry.build("algo", values, self.spec, parts, path="algo")
