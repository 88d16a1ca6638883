"""A gated layer: some units of a linear layer open or close the others.

pytest my_network/
rlrun train algo=ppo env=CartPole network=./my_network/my_network.py
"""

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlrun.networks.linear import Linear
from rlrun.networks.torsos import LinearTorso
from rlrun.settings import PositiveInt, Units, config, register
from rlrun.types import Obs


@register("network", "my_network")
class MyNetwork(nn.Module):
    """Applies gated layers to all inputs as a flat vector. The algorithm adds the output layer."""

    @config
    class Config:
        units: Units = 64  # units per layer
        layers: PositiveInt = 2  # number of layers

    def __init__(self, cfg: Config, spaces: list[Space], members: int | None):
        """Builds the network for observations, and also for actions if the algorithm learns Q(s, a).

        members: the size of an ensemble, None for a single network. `Linear` holds the weights of all members.
        """
        super().__init__()
        self.flat = LinearTorso(None, spaces, None)
        widths = [self.flat.features] + [cfg.units] * (cfg.layers - 1)
        self.layers = nn.ModuleList(Linear(width, cfg.units, members) for width in widths)
        self.gates = nn.ModuleList(Linear(width, cfg.units, members) for width in widths)
        self.features = cfg.units  # size of the output; every network must set it

    def forward(self, *inputs: Obs) -> Tensor:
        """Returns features [batch, features], or [members, batch, features] of an ensemble."""
        x = self.flat(*inputs)
        for layer, gate in zip(self.layers, self.gates, strict=True):
            x = torch.tanh(layer(x)) * torch.sigmoid(gate(x))
        return x
