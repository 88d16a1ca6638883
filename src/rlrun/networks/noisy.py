"""Exploration that is learned: noise on the weights of a network (Fortunato et al. 2018, arXiv 1706.10295)."""

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rlrun.functional.distributions import Source
from rlrun.networks.linear import Linear
from rlrun.networks.recurrent import without_next_state


class Noisy(nn.Module):
    """Any network with factorised noise on all its linear layers: w + std * f(before) f(after)^T, f = sign * sqrt.

    The deviations are learned like the weights; they start at std / sqrt(inputs). Called without noise, it is the
    network itself.
    """

    def __init__(self, network: nn.Module, std: float):
        super().__init__()
        self.network = network
        layers = {name: module for name, module in network.named_modules() if isinstance(module, Linear)}
        self.names = [*layers]
        self.sizes = [sum(layer.weight.shape) for layer in layers.values()]
        starts = [std / math.sqrt(layer.weight.shape[0]) for layer in layers.values()]
        self.weight_std, self.bias_std = (
            nn.ParameterList(
                torch.full_like(getattr(layer, part), start)
                for layer, start in zip(layers.values(), starts, strict=True)
            )
            for part in ("weight", "bias")
        )

    def noise(self, source: Source) -> Tensor:
        """For one call: f of normal numbers, one for each input and output of each layer; [sum of sizes]."""
        x = source.normal(sum(self.sizes))
        return x.sign() * x.abs().sqrt()

    def forward(self, obs: object, noise: Tensor | None = None) -> Tensor:
        if noise is None:
            return self.network(obs)
        weights = {}
        parts = noise.split(self.sizes)
        for name, weight_std, bias_std, part in zip(self.names, self.weight_std, self.bias_std, parts, strict=True):
            before, after = part.split([*weight_std.shape])
            layer = self.network.get_submodule(name)
            weights[f"{name}.weight"] = layer.weight + weight_std * torch.outer(before, after)
            weights[f"{name}.bias"] = layer.bias + bias_std * after
        return functional_call(self.network, weights, (without_next_state(obs),))
