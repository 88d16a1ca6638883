"""Traces the policy of a trained agent as one function of tensors.

Inputs are the raw observation, by the names of its entries (`obs` if it is one array), and the recurrent state as
`state.<name>`, which is 0 at the first step of an episode. Outputs are `action`, in the environment's own units, or
`action.<name>` for every part of a Tuple or Dict action, and `next_state.<name>`, the state of the next step. Every
tensor is [batch, ...].
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.previous import of_step
from rlrun.envs.stepping.actions import Actions, NestedActions
from rlrun.errors import ConfigError, reason
from rlrun.nested import leaves, mapped
from rlrun.types import Batch, Obs

ACTION = "action"
CARRY, STATE, NEXT_STATE = "carry.", "state.", "next_state."


class NativeActions(nn.Module):
    """Converts actions of the agent to the environment's units, as `Actions` does with arrays."""

    low: Tensor | None  # bounds in the agent's units; None: no bounds
    high: Tensor | None
    scale: Tensor | None  # as in `Actions`
    offset: Tensor | None
    native_low: Tensor | None  # bounds in the environment's units, if actions are scaled
    native_high: Tensor | None

    def __init__(self, actions: Actions):
        super().__init__()
        native = actions.native
        self.shape = native.shape
        self.dtype = torch.from_numpy(np.empty(0, native.dtype)).dtype
        low = high = native_low = native_high = None
        if actions.bounds is not None:
            low, high = actions.bounds
        if actions.scale is not None:
            native_low, native_high = native.low.ravel(), native.high.ravel()
        self._store("low", low)
        self._store("high", high)
        self._store("scale", actions.scale)
        self._store("offset", actions.offset)
        self._store("native_low", native_low)
        self._store("native_high", native_high)

    def _store(self, name: str, array: object) -> None:
        if array is not None:
            array = torch.as_tensor(np.array(array))
        self.register_buffer(name, array)

    def forward(self, action: Tensor) -> Tensor:
        action = clipped(action, self.low, self.high)
        if self.scale is not None:
            action = action * self.scale
        if self.offset is not None:
            action = action + self.offset
        action = clipped(action, self.native_low, self.native_high)
        if action.is_floating_point() and not self.dtype.is_floating_point:
            action = action.round()
        return action.to(self.dtype).reshape(-1, *self.shape)


class NativeParts(nn.Module):
    """Converts actions of the agent to outputs: `action`, or `action.<name>` for every part of a Tuple or Dict."""

    def __init__(self, actions: Actions):
        super().__init__()
        self.columns: dict[str, slice | None] = {ACTION: None}  # entries of the agent's action, by output; None: all
        parts = [actions]
        if isinstance(actions, NestedActions):
            self.columns = {f"{ACTION}.{name}": actions.columns[name] for name in actions.parts}
            parts = [*actions.parts.values()]
        self.parts = nn.ModuleList(map(NativeActions, parts))

    def forward(self, action: Tensor) -> Batch:
        outputs = {}
        for (name, columns), native in zip(self.columns.items(), self.parts, strict=True):
            if columns is None:
                outputs[name] = native(action)
            else:
                outputs[name] = native(action[:, columns])
        return outputs


class PolicyProgram(nn.Module):
    """Maps inputs to outputs by name. Its parameters are only those that acting uses."""

    low: Tensor | None  # bounds of actions in the agent's units; None: no bounds
    high: Tensor | None

    def __init__(self, agent: Agent, addons: Addons, space: Space, actions: Actions, state: Batch):
        super().__init__()
        self.acting = nn.ModuleList([*addons.acting(), *agent.acting()])
        self.native = NativeParts(actions)
        low, high = actions.bounds or (None, None)
        for name, bound in (("low", low), ("high", high)):
            self.register_buffer(name, None if bound is None else torch.as_tensor(np.array(bound)))
        self.parts = (agent, addons)  # the tuple keeps modules that only learning needs out of the module tree
        self.names = input_names(space)
        self.state = {name.removeprefix(CARRY): zeros for name, zeros in state.items()}
        taken = [*leaves(self.names), *self.first_state(1)]
        if len({*taken}) < len(taken):
            raise ConfigError(f"export: entries of the observation have equal names: {', '.join(taken)}")

    def first_state(self, batch: int) -> Batch:
        """Returns the state at the first step of an episode, as inputs."""
        state = {}
        for name, zeros in self.state.items():
            state[STATE + name] = zeros[:1].expand(batch, *zeros.shape[1:]).clone()
        return state

    def inputs(self, obs: Obs) -> Batch:
        """Returns the observation as inputs."""
        entries = mapped(lambda name, entry: (name, entry), self.names, obs)
        return dict(leaves(entries))

    def first_inputs(self, obs: Obs) -> Batch:
        """Returns the inputs at the first step of an episode."""
        inputs = self.inputs(obs)
        batch = len(next(iter(inputs.values())))
        return inputs | self.first_state(batch)

    def forward(self, inputs: Batch) -> Batch:
        agent, addons = self.parts
        obs = mapped(inputs.__getitem__, self.names)
        entry = next(leaves(obs))
        carry = {"first": entry.new_zeros(entry.shape[0], dtype=torch.bool)}
        for name in self.state:
            carry[CARRY + name] = inputs[STATE + name]
        action, extras = addons.act(agent, obs, carry, False)
        extras |= of_step({"executed": clipped(action, self.low, self.high)}, addons.reads_previous)
        outputs: Batch = self.native(action)
        for name in self.state:
            outputs[NEXT_STATE + name] = extras[CARRY + name]
        return outputs


def build(agent: Agent, addons: Addons, env: Any, obs: Obs) -> PolicyProgram:
    """Returns the policy as a module. obs: a batch of observations of `env`.

    Raises ConfigError if the agent or one of its add-ons cannot be exported.
    """
    for part in (agent, *addons):
        if part.unexportable:
            raise ConfigError(f"export: algo={agent.registered} cannot be exported, because {part.unexportable}")
    if "reward" in addons.reads_previous:
        raise ConfigError(f"export: algo={agent.registered} cannot be exported, because its networks read rewards")
    first = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    action, extras = addons.act(agent, obs, {"first": first}, False)
    extras |= of_step({"executed": action}, addons.reads_previous)
    state = {name: torch.zeros_like(value) for name, value in extras.items() if name.startswith(CARRY)}
    return PolicyProgram(agent, addons, env.spec.obs, env.actions, state)


def trace(policy: PolicyProgram, obs: Obs) -> ExportedProgram:
    """Returns the program of a policy, for any batch size. Raises ConfigError if torch cannot trace it."""
    inputs = policy.first_inputs(obs)
    batch = Dim("batch", min=1)
    shapes = {name: {0: batch} for name in inputs}
    try:
        with quiet():
            program = torch.export.export(policy, (inputs,), dynamic_shapes=(shapes,), strict=False)
    except Exception as error:
        raise ConfigError(f"export: torch cannot trace this policy ({reason(error)[:300]})") from None
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it holds paths of this machine
    return program


def input_names(space: Space, name: str = "") -> object:
    """Returns the names of the inputs of an observation space, nested as it is: `obs`, or `camera`, `arm.angle`, ..."""
    if not isinstance(space, spaces.Dict):
        return name or "obs"
    names = {}
    for key, part in space.items():
        names[key] = input_names(part, f"{name}.{key}".lstrip("."))
    return names


def clipped(values: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """Returns values between two bounds, or all values if there are none; NaN stays NaN."""
    if low is None or high is None:
        return values
    return torch.minimum(torch.maximum(values, low.to(values.dtype)), high.to(values.dtype))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """As a context manager, suppresses the output of torch's exporters: warnings, log lines, and graphs on stderr."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
