"""Torsos that remember (Hochreiter and Schmidhuber 1997; Cho et al. 2014, arXiv 1406.1078).

What they remember travels with the observation: `memory` [batch, size] is the state before it, 0 where an episode
starts, and every torso of an agent has its own part of it. Sequences also have `first` [time, batch]: they are unrolled
from the first row's memory, which is forgotten wherever an episode starts inside.
"""

from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.config.schema import PositiveInt, config
from rlrun.errors import ConfigError
from rlrun.networks.torsos import Activation, Init, auto
from rlrun.registry import register
from rlrun.types import Batch


class Recurrent(nn.Module):
    """An encoder (`auto`), then a recurrent cell: obs [batch, ...] or [time, batch, ...] -> features of every row."""

    @config
    class Config:
        hidden: list[PositiveInt]
        activation: Activation
        init: Init
        features: PositiveInt
        sequence_length: PositiveInt

    cell: nn.Module
    parts: int  # of the state, each as wide as the features, which are the first

    def __init__(self, cfg: Any, inputs: list[Space], members: int | None):
        super().__init__()
        if members is not None or len(inputs) > 1:
            name = type(self).__name__.lower()
            raise ConfigError(f"network={name} is not supported by this algorithm: critics of actions cannot remember")
        self.encoder = auto(cfg, inputs, None)
        self.nested = isinstance(inputs[0], spaces.Dict)
        self.sequence_length = cfg.sequence_length
        self.features, self.size, self.offset = cfg.features, self.parts * cfg.features, 0

    def forward(self, obs: Any) -> Tensor:
        return self.after(obs)[..., : self.features]

    def after(self, obs: Batch) -> Tensor:
        """The states after every observation: [..., size]."""
        memory = obs["memory"][..., self.offset : self.offset + self.size]
        rows = memory.shape[:-1]
        seen = flat(obs if self.nested else obs["obs"], len(rows))
        encoded = self.encoder(seen).unflatten(0, rows)
        first = obs.get("first")
        if first is None or first.dim() < 2:
            return self.step(encoded, memory)
        states, state = [], memory[0]
        for x, start in zip(encoded, first, strict=True):
            state = self.step(x, state * ~start.unsqueeze(-1))
            states.append(state)
        return torch.stack(states)

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        """The cell once: x [batch, inputs], state [batch, size] -> the next state."""
        raise NotImplementedError


@register("network", "lstm")
class Lstm(Recurrent):
    parts = 2

    def __init__(self, cfg: Any, inputs: list[Space], members: int | None):
        super().__init__(cfg, inputs, members)
        self.cell = nn.LSTMCell(self.encoder.features, cfg.features)

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        return torch.cat(self.cell(x, state.chunk(2, -1)), -1)


@register("network", "gru")
class Gru(Recurrent):
    parts = 1

    def __init__(self, cfg: Any, inputs: list[Space], members: int | None):
        super().__init__(cfg, inputs, members)
        self.cell = nn.GRUCell(self.encoder.features, cfg.features)

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        return self.cell(x, state)


class Memory:
    """What all recurrent torsos of an agent remember, side by side. Without any, it is empty and changes nothing."""

    def __init__(self) -> None:
        self.torsos: list[Recurrent] = []
        self.size = 0
        self.sequence_length = 1  # rows through which gradients flow

    def add(self, torso: nn.Module) -> None:
        if isinstance(torso, Recurrent):
            torso.offset, self.size = self.size, self.size + torso.size
            self.torsos.append(torso)
            self.sequence_length = torso.sequence_length

    def extras(self, obs: Any) -> Batch:
        """To be stored with a step: the memory before the observation, and after it, which comes back with the next."""
        if not self.torsos:
            return {}
        return {"memory": obs["memory"], "carry.memory": torch.cat([torso.after(obs) for torso in self.torsos], -1)}


def flat(obs: Any, dims: int) -> Any:
    """The first dimensions of every tensor as one."""
    if isinstance(obs, dict):
        return {key: flat(value, dims) for key, value in obs.items()}
    return obs.flatten(0, dims - 1)
