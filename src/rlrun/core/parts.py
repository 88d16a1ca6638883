"""What an agent is built from: torsos of the chosen network, random streams, other agents."""

from typing import Any, TypeVar

import torch
from gymnasium import Space
from torch import nn

from rlrun import registry
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.networks.recurrent import Memory
from rlrun.types import Spec

P = TypeVar("P")
ROLES = ("actor", "critic")  # sections of `network`, each for one kind of torso


def for_role(network: dict[str, Any], role: str | None) -> dict[str, Any]:
    """The section `network` as a torso of this role reads it."""
    shared = {key: value for key, value in network.items() if key not in ROLES}
    return shared | section_of(network, role)


def section_of(network: dict[str, Any], role: str | None) -> dict[str, Any]:
    """What `network` says of this role alone."""
    if role is None:
        return {}
    section = network.get(role, {})
    if not isinstance(section, dict):
        raise ConfigError(f"network.{role}={section!r}: must be a section")
    return section


class Parts:
    """Handed to every agent's constructor. Knows the run's seed, device and network, so that agents need not."""

    def __init__(self, seed: int, device: torch.device, network: dict[str, Any], spec: Spec, scope: str = "agent"):
        self.seed, self.device, self.network, self.spec, self.scope = seed, device, network, spec, scope
        self.memory = Memory()
        self.torsos: list[tuple[str | None, nn.Module]] = []  # that were built, each with its role

    def torso(
        self, role: str | None = None, inputs: tuple[str | Space, ...] = ("obs",), members: int | None = None
    ) -> nn.Module:
        """The chosen network over "obs", "action" or spaces of the agent's own: forward(*inputs) -> [batch, features],
        or with members [members, batch, features]. Its `features` says how many.

        role: "actor" or "critic" takes the values of that section of `network` before those of `network` itself.
        """
        named = {"obs": self.spec.obs, "action": self.spec.action}
        spaces = [named[part] if isinstance(part, str) else part for part in inputs]
        torso: nn.Module = registry.build("network", for_role(self.network, role), spaces, members, path="network")
        self.torsos.append((role, torso))
        self.memory.add(torso)
        return torso

    def stream(self, name: str) -> Stream:
        """Random numbers for one purpose of this agent."""
        return Stream(self.seed, f"{self.scope}.{name}", self.device)

    def part(self, group: str, values: dict[str, Any], kind: type[P], *runtime: Any) -> P:
        """The part `algo.<group>`, built from its values. Raises ConfigError unless it is a `kind`."""
        path = f"algo.{group}"
        if not issubclass(registry.lookup(group, values["name"]), kind):
            suited = [name for name, cls in registry.registered(group).items() if issubclass(cls, kind)]
            raise ConfigError(f"{path}={values['name']}: must be one of {', '.join(suited)} for this algorithm")
        part: P = registry.build(group, values, *runtime, path=path)
        return part

    def agent(self, values: dict[str, Any], name: str) -> Any:
        """Another agent inside this one; `name` keeps their random numbers apart."""
        parts = Parts(self.seed, self.device, self.network, self.spec, f"{self.scope}.{name}")
        parts.torsos = self.torsos
        return agent_named(values, self.spec, parts)


def agent_named(values: dict[str, Any], spec: Spec, parts: Parts) -> Any:
    """The agent that `values` name; for reward vectors the variant that is registered for them, if there is one."""
    group = "algo"
    if spec.reward_dim > 1 and values["name"] in registry.names("vector_algo"):
        group = "vector_algo"
    return registry.build(group, values, spec, parts, path="algo")
