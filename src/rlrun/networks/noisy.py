"""Noisy networks: exploration by learned noise on the weights (Fortunato et al. 2018, arXiv 1706.10295)."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rlrun.errors import ConfigError
from rlrun.functional.distributions import Source
from rlrun.networks.linear import Linear
from rlrun.networks.recurrent import without_next_state
from rlrun.types import Obs


class Noisy(nn.Module):
    """Adds factorised Gaussian noise to the weights of the linear layers of a network.

    layers: how many of the last layers have noise, at least 1; None: all. The output layers of a dueling head, which
    lie side by side, count as one. Raises ConfigError if the network has fewer linear layers.

    The weights of a layer become w + weight_std * f(x) f(y)^T and its biases b + bias_std * f(y), where x [inputs] and
    y [outputs] are standard normal and f(x) = sign(x) sqrt(|x|). The standard deviations are learned like the weights;
    their initial value is std / sqrt(inputs). The members of an ensemble share x and y. If `noise` is None, the network
    is evaluated without noise.
    """

    def __init__(self, network: nn.Module, std: float, layers: int | None = None):
        super().__init__()
        self.network = network
        self.names: list[str] = []
        self.sizes: list[int] = []  # number of noise samples of each layer: inputs + outputs
        self.weight_std = nn.ParameterList()
        self.bias_std = nn.ParameterList()
        for name in last_layers(network, layers):
            layer: Any = network.get_submodule(name)
            self._add(name, layer, std)

    def _add(self, name: str, layer: Linear, std: float) -> None:
        inputs, outputs = layer.weight.shape[-2:]
        start = std / math.sqrt(inputs)
        weight_std = torch.full_like(layer.weight, start)
        bias_std = torch.full_like(layer.bias, start)
        self.names.append(name)
        self.sizes.append(inputs + outputs)
        self.weight_std.append(nn.Parameter(weight_std))
        self.bias_std.append(nn.Parameter(bias_std))

    def noise(self, source: Source) -> Tensor:
        """Returns the noise for one forward call, [sum(sizes)].

        It holds f(x) with x standard normal for every input and output of every layer.
        """
        x = source.normal(sum(self.sizes))
        return x.sign() * x.abs().sqrt()

    def forward(self, obs: object, noise: Tensor | None = None) -> Tensor:
        if noise is None:
            return self.network(obs)
        weights = {}
        parts = noise.split(self.sizes)
        for name, weight_std, bias_std, part in zip(self.names, self.weight_std, self.bias_std, parts, strict=True):
            layer = self.network.get_submodule(name)
            input_noise, output_noise = part.split([*weight_std.shape[-2:]])
            weight_noise = torch.outer(input_noise, output_noise)
            weights[f"{name}.weight"] = layer.weight + weight_std * weight_noise
            weights[f"{name}.bias"] = layer.bias + bias_std * output_noise
        inputs = (without_next_state(obs),)
        return functional_call(self.network, weights, inputs)

    def select(self, members: Tensor | None, *inputs: Obs) -> Tensor:
        """Returns the outputs of the selected members, [selected, ...]; None selects all. All members are computed."""
        outputs = self(*inputs)
        if members is None:
            return outputs
        return outputs[members]


def last_layers(network: nn.Module, count: int | None) -> list[str]:
    """Returns the names of the last `count` linear layers of a head with its torso; None: of all. See `Noisy`."""
    names = [name for name, layer in network.named_modules() if isinstance(layer, Linear)]
    hidden = [name for name in names if "." in name]  # layers of the torso, in order
    outputs = [name for name in names if "." not in name]  # layers of the head itself, side by side
    if count is None:
        return names
    most = len(hidden) + 1
    if count > most:
        raise ConfigError(f"algo.noisy_layers={count}: must be at most {most}, the number of linear layers")
    return hidden[most - count :] + outputs
