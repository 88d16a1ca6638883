"""Torsos that remember (Hochreiter and Schmidhuber 1997; Cho et al. 2014, arXiv 1406.1078).

What they remember travels with the observation: `memory` [batch, size] is the state before it, 0 where an episode
starts, `memory_after` the one after it, where that is known already; every torso of an agent has its own part of them.
Only observations are remembered; a critic's action joins what it remembers, so that one memory values any action, and
the members of an ensemble share it.

Observations of several steps are unrolled over time. Those of a rollout, [time, batch, ...], bring `first`
[time, batch]: they start with the first row's memory, which is forgotten wherever an episode starts inside. Those out
of replay are rows [rows, ...] that know their past: `seen` [time, batch, ...], of which they are the numbers `rows`,
after a burn-in without gradients over `before` [burn_in, batch, ...]. `start` [burn_in + 1, batch] marks where in it,
or at its end, `memory` comes in.
"""

from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.config.schema import NonNegativeInt, Size, Units, config
from rlrun.errors import ConfigError
from rlrun.nested import flat
from rlrun.networks.torsos import Layers, Mlp, auto
from rlrun.registry import register
from rlrun.types import Batch

ONE_LAYER = (True, 1, 0.0, True, False, False)  # with biases, no dropout, with gradients, forward in time, time first


class Recurrent(nn.Module):
    """An encoder (`auto`), then a recurrent cell: obs [batch, ...] or [time, batch, ...] -> features of every row.

    Beside other inputs, or as an ensemble, linear layers follow over all of them.
    """

    @config
    class Config(Layers):
        features: Units
        sequence_length: Size
        burn_in: NonNegativeInt
        start: Literal["stored", "zero"]

    of_agent = ("sequence_length", "burn_in", "start")  # settings that all recurrent torsos of an agent share
    cell_type: type[nn.Module]
    parts: int  # of the state, each as wide as the cell, which shows the first

    def __init__(self, cfg: Any, inputs: list[Space], members: int | None):
        super().__init__()
        if cfg.start == "zero" and cfg.burn_in + cfg.sequence_length == 1:
            raise ConfigError("network.start=zero: needs network.sequence_length above 1, else nothing is remembered")
        obs, *others = inputs
        self.encoder = auto(cfg, [obs], None)
        self.nested = isinstance(obs, spaces.Dict)
        self.cell = self.cell_type(self.encoder.features, cfg.features)
        self.cfg, self.size, self.offset = cfg, self.parts * cfg.features, 0
        shown = spaces.Box(-np.inf, np.inf, (cfg.features,))
        self.join = Mlp(cfg, [shown, *others], members) if others or members else None
        self.features = self.join.features if self.join else cfg.features

    def forward(self, obs: Any, *others: Any) -> Tensor:
        shown = self.recalled(obs) if "rows" in obs else self.after(obs)[..., : self.cfg.features]
        return self.join(shown, *others) if self.join else shown

    def after(self, obs: Batch) -> Tensor:
        """The states after every observation: [..., size]."""
        if "memory_after" in obs:
            return self.own(obs["memory_after"])
        memory = self.own(obs["memory"])
        seen = obs if self.nested else obs["obs"]
        first = obs.get("first")
        if first is None or first.dim() < 2:
            return self.step(self.encoder(seen), memory)
        states, state = [], memory[0]
        for x, start in zip(self.encoded(seen, first.shape[1]), first.unsqueeze(-1), strict=True):
            state = self.step(x, state * ~start)
            states.append(state)
        return torch.stack(states)

    def recalled(self, obs: Batch) -> Tensor:
        """What the cell shows at rows out of replay: [rows, features]."""
        memory, start = self.own(obs["memory"]), obs["start"].unsqueeze(-1)
        state, batch = memory, len(memory)
        with torch.no_grad():
            if len(start) > 1:
                for x, here in zip(self.encoded(obs["before"], batch), start, strict=False):
                    state = self.step(x, torch.where(here, memory, state))
            state = torch.where(start[-1], memory, state)
        return self.steps(self.encoded(obs["seen"], batch), state).flatten(0, 1).index_select(0, obs["rows"])

    def own(self, memory: Tensor) -> Tensor:
        """This torso's part of what the agent remembers."""
        return memory[..., self.offset : self.offset + self.size]

    def encoded(self, seen: Any, batch: int) -> Tensor:
        """[time, batch, ...] -> [time, batch, inputs of the cell]."""
        return self.encoder(flat(seen)).unflatten(0, (-1, batch))

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        """The cell once: x [batch, inputs], state [batch, size] -> the next state."""
        raise NotImplementedError

    def steps(self, x: Tensor, state: Tensor) -> Tensor:
        """The cell over time, all at once: x [time, batch, inputs] -> what it shows, [time, batch, features]."""
        raise NotImplementedError


@register("network", "lstm")
class Lstm(Recurrent):
    cell_type, parts = nn.LSTMCell, 2

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        return torch.cat(self.cell(x, state.chunk(2, -1)), -1)

    def steps(self, x: Tensor, state: Tensor) -> Tensor:
        start = [part.contiguous() for part in state.unsqueeze(0).chunk(2, -1)]
        return torch.lstm(x, start, [*self.cell.parameters()], *ONE_LAYER)[0]


@register("network", "gru")
class Gru(Recurrent):
    cell_type, parts = nn.GRUCell, 1

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        return self.cell(x, state)

    def steps(self, x: Tensor, state: Tensor) -> Tensor:
        return torch.gru(x, state.unsqueeze(0), [*self.cell.parameters()], *ONE_LAYER)[0]


class Memory:
    """What all recurrent torsos of an agent remember, side by side. Without any, it is empty and changes nothing."""

    def __init__(self) -> None:
        self.torsos: list[Recurrent] = []
        self.size = 0
        self.sequence_length = 1  # rows through which gradients flow
        self.burn_in = 0  # rows before them that refresh the memory
        self.stores: dict[str, Space] = {}  # of the extras, what replay keeps

    def add(self, torso: nn.Module) -> None:
        if isinstance(torso, Recurrent):
            torso.offset, self.size = self.size, self.size + torso.size
            self.torsos.append(torso)
            self.sequence_length, self.burn_in = torso.cfg.sequence_length, torso.cfg.burn_in
            if torso.cfg.start == "stored":
                self.stores = {"memory": spaces.Box(-np.inf, np.inf, (self.size,), np.float32)}

    def after(self, obs: Batch) -> Tensor:
        """The state of all torsos after an observation with the state before it: [batch, size]."""
        return torch.cat([torso.after(obs) for torso in self.torsos], -1)


def without_next_state(obs: Any) -> Any:
    """An observation from which a network with other weights computes the state after it anew."""
    if not isinstance(obs, dict):
        return obs
    return {key: value for key, value in obs.items() if key != "memory_after"}
