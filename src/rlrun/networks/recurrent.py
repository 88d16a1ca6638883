"""Recurrent torsos: LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014, arXiv 1406.1078).

The observation of a recurrent torso is a dict that also holds the hidden state:

    hidden_state       [batch, size]: state before the observation, 0 where an episode starts
    next_hidden_state  [batch, size]: state after the observation, present only if it was computed already
    first              [time, batch]: only in rollouts [time, batch, ...]; True where an episode starts, which resets
                       the state to 0. Of the rollout's `hidden_state` [time, batch, size] only time 0 is then read

Both states hold one part per recurrent torso of the agent. The state does not depend on actions, because a critic joins
actions with the output of the cell; nor does it differ between ensemble members.

Replay returns sequences [time, batch, ...] that begin with a burn-in: timesteps from which the current weights compute
the hidden state anew. Agents learn from the other timesteps as a flat batch of rows. The observation then has the
following entries, shown for burn_in = 2, sequence_length = 3, n_step = 1 and batch = 1:

    timestep             0      1   |  2      3      4      5
                       burn_in_obs  |  sequence ---------------
                        no gradient |  gradient
    row_index of obs                   0      1      2
    row_index of next_obs                     1      2      3

    hidden_state       [batch, size]: stored state before timestep 0
    burn_in_obs        [burn_in, batch, ...]: observations of the burn-in
    sequence           [time, batch, ...]: observations after the burn-in, with the next observations of the last rows
    row_index          [rows]: rows of `sequence.flatten(0, 1)` whose features are returned
    reset              [burn_in + 1, batch]: True at the first timestep that is not padding (mask 1), where
                       `hidden_state` replaces the state that was computed from padding
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.networks.inputs import random_rows
from rlrun.networks.torsos import ImageLayers, Mlp, auto
from rlrun.settings import Around, NonNegativeInt, Requires, Size, Units, config, register, registry
from rlrun.tensors import flat, selected
from rlrun.types import Batch, Obs


class Recurrent(Requires, nn.Module):
    """An encoder (`auto`) and recurrent layers: obs [batch, ...] or [time, batch, ...] -> features of each row.

    The cell of a layer takes the output of the layer below. The state concatenates the states of all layers, the lowest
    first. If the torso has other inputs, or members, an MLP follows that takes the output of the last cell and the
    other inputs.
    """

    @config
    class Config(ImageLayers):
        features: Units
        layers: Units
        sequence_length: Size
        burn_in: NonNegativeInt
        start: Literal["stored", "zero"]
        previous: list[Literal["action", "reward"]]

    shared_settings = ("sequence_length", "burn_in", "start", "previous")  # equal for all recurrent torsos of an agent
    cell_type: type[nn.Module]
    parts: int  # number of vectors in the state of a cell, each as wide as the cell; the first is its output

    def __init__(self, cfg: Any, inputs: list[Space], members: int | None):
        super().__init__()
        if cfg.start == "zero" and cfg.burn_in + cfg.sequence_length == 1:
            raise ConfigError(
                "network.start=zero: the hidden state is always 0 unless network.sequence_length is above 1 or "
                "network.burn_in above 0"
            )
        obs, *others = inputs
        self.cfg = cfg
        self.encoder = auto(cfg, [obs], None)
        self.obs_is_dict = isinstance(obs, spaces.Dict)
        self.cell = self.cell_type(self.encoder.features, cfg.features)
        upper = [self.cell_type(cfg.features, cfg.features) for _ in range(cfg.layers - 1)]
        self.upper_cells = nn.ModuleList(upper)
        self.layer_size = self.parts * cfg.features
        self.size = cfg.layers * self.layer_size
        self.offset = 0  # where the part of this torso begins in the hidden state of the agent
        self.features = cfg.features
        self.join = None
        if others or members:
            output = spaces.Box(-np.inf, np.inf, (cfg.features,))
            self.join = Mlp(cfg, [output, *others], members)
            self.features = self.join.features

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        network = f"network={around.network} is not supported"
        if not around.remembers:
            yield f"{network} by algo={around.algo}, which keeps no recurrent state between steps"
            return
        if around.buffer is not None:
            for addon in around.addons:
                yield f"{network} with algo.{addon}, which takes no sequences"
        for role, section in own.items():
            if not isinstance(section, dict):  # a setting, not the section of a role
                continue
            for key in cls.shared_settings:
                if key in section:
                    yield f"network.{role}.{key}: is the same for the whole agent; set network.{key}"
        if around.buffer is None and (own["burn_in"] or own["start"] == "zero"):
            yield (
                f"network.burn_in={own['burn_in']}, network.start={own['start']}: algo={around.algo} learns from "
                "rollouts, whose recurrent states are never outdated; set burn_in=0 and start=stored"
            )

    def forward(self, obs: Any, *others: object) -> Tensor:
        if "row_index" in obs:
            output = self.replayed_output(obs)
        else:
            state = self.next_state(obs)
            last_layer = state[..., -self.layer_size :]
            output = last_layer[..., : self.cfg.features]
        if self.join is None:
            return output
        return self.join(output, *others)

    def next_state(self, obs: Batch) -> Tensor:
        """Returns the state after every observation, [..., size]."""
        if "next_hidden_state" in obs:
            return self.own_part(obs["next_hidden_state"])
        hidden_state = self.own_part(obs["hidden_state"])
        inputs: Any = obs
        if not self.obs_is_dict:
            inputs = obs["obs"]
        first = obs.get("first")
        if first is None or first.dim() == 1:  # single timesteps, or a flattened rollout with all its states
            return self.step(self.encoder(inputs), hidden_state)
        _, batch = first.shape
        state = hidden_state[0]  # before the first timestep
        states = []
        for x, is_first in zip(self.encode(inputs, batch), first.unsqueeze(-1), strict=True):
            state = self.step(x, state * ~is_first)
            states.append(state)
        return torch.stack(states)

    def replayed_output(self, obs: Batch) -> Tensor:
        """Returns the output of the cell at the rows `row_index` of replayed sequences, [rows, features]."""
        state = self.burned_in(obs)
        x = self.encode(obs["sequence"], len(state))
        outputs = self.unroll(x, state)
        return outputs.flatten(0, 1).index_select(0, obs["row_index"])

    @torch.no_grad()
    def burned_in(self, obs: Batch) -> Tensor:
        """Returns the state after the burn-in, [batch, size]."""
        hidden_state = self.own_part(obs["hidden_state"])
        resets = obs["reset"].unsqueeze(-1).unbind(0)
        state = hidden_state
        if len(resets) > 1:
            burn_in = self.encode(obs["burn_in_obs"], len(hidden_state))
            for x, reset in zip(burn_in, resets[:-1], strict=True):
                state = self.step(x, torch.where(reset, hidden_state, state))
        return torch.where(resets[-1], hidden_state, state)

    def own_part(self, state: Tensor) -> Tensor:
        """Returns this torso's part of the hidden state of the agent."""
        return state[..., self.offset : self.offset + self.size]

    def encode(self, obs: Obs, batch: int) -> Tensor:
        """Returns the encoded observations, which are the inputs of the cell: [time, batch, ...] -> [time, batch,
        inputs]."""
        encoded = self.encoder(flat(obs))
        return encoded.unflatten(0, (-1, batch))

    def cells(self) -> list[nn.Module]:
        """Returns the cells of all layers, the lowest first."""
        return [self.cell, *self.upper_cells]

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        """Returns the next state of all layers; x [batch, inputs], state [batch, size]."""
        states = []
        for cell, layer_state in zip(self.cells(), state.split(self.layer_size, -1), strict=True):
            next_state = self.cell_step(cell, x, layer_state)
            states.append(next_state)
            x = next_state[..., : self.cfg.features]
        return torch.cat(states, -1)

    def unroll(self, x: Tensor, state: Tensor) -> Tensor:
        """Returns the outputs of the last layer over time in one call; x [time, batch, inputs] -> [time, batch,
        features]."""
        cfg = self.cfg
        by_layer = state.unflatten(-1, (cfg.layers, self.parts, cfg.features))  # [batch, layers, parts, features]
        by_part = by_layer.permute(2, 1, 0, 3)
        initial = [part.contiguous() for part in by_part]  # each [layers, batch, features]
        weights: list[Tensor] = []
        for cell in self.cells():
            weights.extend(cell.parameters())
        options = {
            "has_biases": True,
            "num_layers": cfg.layers,
            "dropout": 0.0,
            "train": True,
            "bidirectional": False,
            "batch_first": False,
        }
        with warnings.catch_warnings():
            # cuDNN needs the weights in one piece of memory, but each weight stays a parameter of its own cell
            warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
            return self.outputs(x, initial, weights, options)

    def cell_step(self, cell: nn.Module, x: Tensor, state: Tensor) -> Tensor:
        """Returns the next state of one cell; x [batch, inputs], state [batch, layer_size]."""
        raise NotImplementedError

    def outputs(self, x: Tensor, initial: list[Tensor], weights: list[Tensor], options: Any) -> Tensor:
        """Returns the outputs of the last layer, by torch's function for this kind of cell.

        initial: the parts of the state before the first timestep. options: further arguments of torch's function.
        """
        raise NotImplementedError


@register("network", "lstm")
class Lstm(Recurrent):
    """A long short-term memory. The state of a layer is its output h and its cell state c, concatenated."""

    cell_type = nn.LSTMCell
    parts = 2

    def cell_step(self, cell: nn.Module, x: Tensor, state: Tensor) -> Tensor:
        h, c = state.chunk(2, -1)
        next_parts = cell(x, (h, c))
        return torch.cat(next_parts, -1)

    def outputs(self, x: Tensor, initial: list[Tensor], weights: list[Tensor], options: Any) -> Tensor:
        outputs, _, _ = torch.lstm(x, initial, weights, **options)
        return outputs


@register("network", "gru")
class Gru(Recurrent):
    """A gated recurrent unit. The state of a layer is its output."""

    cell_type = nn.GRUCell
    parts = 1

    def cell_step(self, cell: nn.Module, x: Tensor, state: Tensor) -> Tensor:
        return cell(x, state)

    def outputs(self, x: Tensor, initial: list[Tensor], weights: list[Tensor], options: Any) -> Tensor:
        outputs, _ = torch.gru(x, initial[0], weights, **options)
        return outputs


class Memoryless(nn.Module):
    """A torso without memory in an agent with recurrent torsos: it reads observations as the environment returns them.

    space: of these observations.
    """

    def __init__(self, torso: nn.Module, space: Space):
        super().__init__()
        self.torso = torso
        self.obs_is_dict = isinstance(space, spaces.Dict)
        self.features: int = torso.features  # type: ignore[assignment]

    def forward(self, obs: Batch, *others: object) -> Tensor:
        if "row_index" in obs:
            rows = selected(flat(obs["sequence"]), obs["row_index"], 0)
            return self.torso(rows, *others)  # type: ignore[no-any-return]
        inputs = obs if self.obs_is_dict else obs["obs"]
        first = obs.get("first")
        if first is None or first.dim() == 1:
            return self.torso(inputs, *others)  # type: ignore[no-any-return]
        features: Tensor = self.torso(flat(inputs), *others)  # of sequences [time, batch, ...]
        return features.unflatten(0, first.shape)


def is_recurrent(name: str) -> bool:
    """Returns whether the networks of this name are recurrent."""
    kind = registry.lookup("network", name)
    return isinstance(kind, type) and issubclass(kind, Recurrent)


class StateLayout:
    """Layout of the agent's hidden state, which concatenates the states of all its recurrent torsos.

    `size` is 0 if no torso is recurrent.
    """

    def __init__(self) -> None:
        self.torsos: list[Recurrent] = []
        self.size = 0
        self.sequence_length = 1  # timesteps through which gradients flow
        self.burn_in = 0  # timesteps before the sequence that refresh the hidden state
        self.stores: dict[str, Space] = {}  # spaces of the extras for replay to store, by name

    def add(self, torso: nn.Module) -> None:
        """Reserves a part of the state for a torso. Does nothing for a torso that is not recurrent."""
        if not isinstance(torso, Recurrent):
            return
        for key in torso.shared_settings:
            if self.torsos and getattr(torso.cfg, key) != getattr(self.torsos[0].cfg, key):
                raise ConfigError(f"network.{key}: must be the same in the networks of actor and critic")
        torso.offset = self.size
        self.size += torso.size
        self.torsos.append(torso)
        # settings that all recurrent torsos share
        self.sequence_length = torso.cfg.sequence_length
        self.burn_in = torso.cfg.burn_in
        if torso.cfg.start == "stored":
            space = spaces.Box(-np.inf, np.inf, (self.size,), np.float32)
            self.stores = {"memory": space}  # the state before each observation

    def hints(self) -> Iterator[str]:
        """Yields a line if stored states are the only memory: no gradient then passes from one timestep to another."""
        if self.stores and self.sequence_length == 1 and not self.burn_in:
            yield (
                "network.start=stored with network.sequence_length=1: no gradient flows through time, so the network "
                "does not learn what to remember; set network.sequence_length above 1"
            )

    def next_state(self, obs: Batch) -> Tensor:
        """Returns the state of all torsos after an observation, [batch, size]."""
        states = [torso.next_state(obs) for torso in self.torsos]
        return torch.cat(states, -1)


def example_inputs(torso: nn.Module, inputs: list[Space], rows: int) -> list[Obs]:
    """Returns random inputs of a torso, `rows` rows of each space; a recurrent one also gets a hidden state."""
    values = [random_rows(space, rows) for space in inputs]
    if isinstance(torso, Recurrent):
        values[0] = with_hidden_state(values[0], torso.size, rows)
    return values


def with_hidden_state(obs: Obs, size: int, rows: int) -> Obs:
    """Returns observations with random hidden states, [rows, size]."""
    if not isinstance(obs, dict):
        obs = {"obs": obs}
    return obs | {"hidden_state": random_rows(spaces.Box(-1.0, 1.0, (size,)), rows)}


def without_next_state(obs: Any) -> Obs:
    """Returns an observation without `next_hidden_state`, so that a network with other weights computes its own."""
    if not isinstance(obs, dict):
        return obs
    return {key: value for key, value in obs.items() if key != "next_hidden_state"}
