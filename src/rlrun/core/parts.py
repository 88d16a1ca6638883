"""Builds what an agent is made of: torsos of the chosen network, random streams, parts, other agents."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from gymnasium import Space
from torch import nn

from rlrun.core.addon import Addon
from rlrun.core.agent import Agent
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.networks.encoded import Encoder
from rlrun.networks.inputs import random_rows
from rlrun.networks.members import sharing
from rlrun.networks.norm import BatchRenorm
from rlrun.networks.recurrent import (
    Memoryless,
    Recurrent,
    StateLayout,
    example_inputs,
    is_recurrent,
    with_hidden_state,
)
from rlrun.settings import registry
from rlrun.spaces import MixedSpace
from rlrun.types import Spec

P = TypeVar("P")
ROLES = ("actor", "critic")  # sections of `network` with values for the torsos of one role
ROWS = 2  # batch size with which the members of an ensemble are compared

# algorithms that are suggested if another does not support an environment, the first ones rather
COMMON = ("ppo", "dqn", "sac", "td3", "discrete_sac", "a2c", "cem", "q_learning")


def for_role(network: dict[str, object], role: str | None) -> dict[str, object]:
    """Returns the values of `network` for torsos of this role: the role's section overrides the shared values.

    A section that names another kind of network inherits only the settings that this kind has. Raises ConfigError if
    there is no such kind.
    """
    shared = {key: value for key, value in network.items() if key not in ROLES}
    own = section_of(network, role)
    name = own.get("name", shared["name"])
    if name != shared["name"]:
        kinds = registry.names("network")
        if name not in kinds:
            raise ConfigError(f"network.{role}.name={name}: must be one of {', '.join(kinds)}")
        known = [field.name for field in dataclasses.fields(registry.lookup("network", str(name)).Config)]
        shared = {key: value for key, value in shared.items() if key in known}
    return shared | own


def section_of(network: dict[str, object], role: str | None) -> dict[str, object]:
    """Returns the section `network.<role>`, {} if it is missing. Raises ConfigError if it is not a section."""
    if role is None:
        return {}
    section = network.get(role, {})
    if not isinstance(section, dict):
        raise ConfigError(f"network.{role}={section!r}: must be a section")
    return section


def previous_inputs(network: dict[str, object]) -> list[str]:
    """Returns what the networks read of the previous step (`network.previous`)."""
    read: set[str] = set()
    for role in (None, *ROLES):
        names = for_role(network, role).get("previous", [])
        assert isinstance(names, list)
        read.update(names)
    return sorted(read)


class Parts:
    """Passed to every agent's constructor. Holds the run's seed, device and network settings on behalf of the agent."""

    def __init__(
        self,
        seed: int,
        device: torch.device,
        network: dict[str, object],
        spec: Spec,
        scope: str = "agent",
        encoder: Encoder | None = None,
        predictor: Addon | None = None,
    ):
        self.seed, self.device, self.network, self.spec, self.scope = seed, device, network, spec, scope
        self.encoder = encoder  # of observations, before every torso that has them as its first input
        # an add-on that predicts the next steps; in a tuple or list of the agent, it is no submodule of it
        self.predictor = predictor
        self.memory = StateLayout()
        self.torsos: list[tuple[str | None, nn.Module]] = []  # every torso that was built, with its role

    def torso(
        self, role: str | None = None, inputs: tuple[str | Space, ...] = ("obs",), members: int | None = None
    ) -> nn.Module:
        """Returns a new torso of the chosen network, with the attribute `features`.

        Its forward(*inputs) returns [batch, features], or [members, batch, features] with `members`.

        role: with "actor" or "critic", values in that section of `network` override those in `network` itself.
        inputs: "obs", "action", or spaces of the agent's own.
        Raises ConfigError if the members share all weights.
        """
        encoder = self.encoder if inputs[0] == "obs" else None
        obs = self.spec.obs if encoder is None else encoder.space
        named = {"obs": obs, "action": self.spec.action}
        spaces = [named[given] if isinstance(given, str) else given for given in inputs]
        values = for_role(self.network, role)
        torso: nn.Module = registry.build("network", values, spaces, members, path="network")
        if members is not None:
            self._check_members(torso, f"network={values['name']}", spaces, members)
        self.memory.add(torso)
        if encoder is not None:
            torso = encoder.before(torso, role)
        is_memoryless = inputs[0] == "obs" and not isinstance(torso, Recurrent)
        if is_memoryless and self.has_hidden_states():
            torso = Memoryless(torso, obs)
        self.torsos.append((role, torso))
        return torso

    def example(self, policy: nn.Module) -> object:
        """Returns what a policy gives for random observations, ROWS of them, when all torsos of the agent are built."""
        with self.undisturbed(), torch.no_grad():
            obs = random_rows(self.spec.obs, ROWS)
            if self.memory.size:
                obs = with_hidden_state(obs, self.memory.size, ROWS)
            return policy(obs)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """A context in which networks may draw random numbers, as for dropout, without a trace in the weights."""
        devices = [self.device] if self.device.type == "cuda" else []
        with self.device, torch.random.fork_rng(devices):
            yield

    def has_hidden_states(self) -> bool:
        """Returns whether a network of the agent is recurrent, so that observations hold hidden states."""
        kinds = {str(for_role(self.network, role)["name"]) for role in (None, *ROLES)}
        return any(map(is_recurrent, kinds))

    def _check_members(self, torso: nn.Module, setting: str, spaces: list[Space], members: int) -> None:
        """Raises ConfigError, which begins with the setting, if the members of an ensemble share all weights."""
        with self.undisturbed(), torch.enable_grad():
            fault = sharing(torso, example_inputs(torso, spaces, ROWS), members)
        if fault is not None:
            raise ConfigError(f"{setting}: {fault}")

    def unsupported(self, agent: Agent) -> Iterator[str]:
        """Yields why the settings of `network` do not fit an agent: a role for which the agent has no network, or batch
        normalisation whose running statistics the agent does not update."""
        built = {role for role, _ in self.torsos}
        for role in ROLES:
            if self.network.get(role) and role not in built:
                yield (
                    f"network.{role}: algo={agent.registered} has no separate network for the {role}; "
                    "set the keys of network itself"
                )
        normalised = any(isinstance(module, BatchRenorm) for _, torso in self.torsos for module in torso.modules())
        if normalised and not agent.moves_statistics:
            yield (
                f"network.norm={BatchRenorm.registered} is not supported by algo={agent.registered}, which does not "
                "update running statistics; use network.norm=layer"
            )

    def stream(self, name: str) -> Stream:
        """Returns a stream of random numbers of this name, for one purpose of this agent."""
        return Stream(self.seed, f"{self.scope}.{name}", self.device)

    def part(self, group: str, values: dict[str, Any], kind: type[P], *runtime: object) -> P:
        """Builds the part `algo.<group>` from its values. Raises ConfigError unless it is an instance of `kind`."""
        path = f"algo.{group}"
        if not issubclass(registry.lookup(group, values["name"]), kind):
            suited = [name for name, cls in registry.registered(group).items() if issubclass(cls, kind)]
            raise ConfigError(f"{path}={values['name']}: not supported by this algorithm; choose {' or '.join(suited)}")
        part: P = registry.build(group, values, *runtime, path=path)
        return part

    def agent(self, values: dict[str, object], name: str) -> Any:
        """Builds another agent inside this one.

        The names of its random streams contain `name`, so their numbers differ from those of this agent.
        """
        parts = Parts(self.seed, self.device, self.network, self.spec, f"{self.scope}.{name}", self.encoder)
        parts.torsos = self.torsos  # one list, so that `unsupported` sees the networks of both
        cls, cfg = agent_class(values, self.spec)
        return cls(cfg, self.spec, parts)


def agent_class(values: dict[str, Any], spec: Spec) -> tuple[type[Agent], object]:
    """Returns the class of the agent that `values` name, and its typed config.

    For mixed actions, this is the class's variant for them, if it has one. Raises ConfigError.
    """
    settings = {key: value for key, value in values.items() if key != "name"}
    cls, cfg = registry.configured("algo", values["name"], settings, "algo")
    if isinstance(spec.action, MixedSpace):
        cls = for_mixed_actions(cls, spec)
    return cls, cfg


def alternatives(spec: Spec) -> str:
    """Returns the end of a message that an algorithm does not support an environment: up to three that do."""
    fitting = []
    for name in COMMON:
        cls = registry.lookup("algo", name)
        if isinstance(spec.action, MixedSpace):
            cls = for_mixed_actions(cls, spec)
        if not any(cls.lacks(spec)):
            fitting.append(name)
    if not fitting:
        return ""
    return f"; algorithms that do: {', '.join(fitting[:3])} (rlrun list algo env=... lists all)"


def for_mixed_actions(cls: type[Agent], spec: Spec) -> type[Agent]:
    """Returns the variant of a class for mixed actions, or the class itself if it has none.

    A class has the variant that is registered in the group `mixed_algo` under its name. A subclass without one has that
    of the nearest base class, and the methods of both, unless it states `actions` itself. Raises ConfigError if it
    overrides what the variant overrides too.
    """
    names = registry.names("mixed_algo")
    for base in cls.__mro__:
        name = vars(base).get("registered")
        if name in names:
            variant: type[Agent] = registry.lookup("mixed_algo", name)
            if issubclass(cls, variant):
                return cls
            return _joined(cls, base, variant, spec)
    return cls


def _joined(cls: type[Agent], base: type, variant: type[Agent], spec: Spec) -> type[Agent]:
    """Returns the class with the methods of `cls` and those of a variant of its base class."""
    if cls is base:
        return variant
    subclasses = cls.__mro__[: cls.__mro__.index(base)]
    own = {name for subclass in subclasses for name in vars(subclass)}
    if "actions" in own:
        return cls
    both = sorted(name for name in own & vars(variant).keys() if not name.startswith("__") and name != "registered")
    if both:
        given = " ".join(f"{spec.shown_action}".split())
        raise ConfigError(
            f"algo={cls.registered}: {cls.__name__} overrides {' and '.join(both)}, as {variant.__name__} does, with "
            f"which {base.__name__} learns {given}; write a class that does both: "
            f'@register("mixed_algo", "{cls.registered}") class Mixed{cls.__name__}({cls.__name__}, {variant.__name__})'
        )
    return type(cls.__name__, (cls, variant), {"__module__": cls.__module__, "__doc__": cls.__doc__})
