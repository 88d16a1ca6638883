"""One network, many parameter vectors: a population acts in one pass."""

from typing import Any

import torch
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.nested import unflattened


class Stacked(nn.Module):
    """Calls a template network, built with members=1, with parameters from outside. Holds none of its own."""

    def __init__(self, template: nn.Module):
        super().__init__()
        if any(param.shape[0] != 1 for param in template.parameters()):
            raise ConfigError("network: convolutions are not supported in a population; take network=mlp or linear")
        # hidden from the module tree: the template's own weights are never used
        self.template = (template.requires_grad_(False),)
        self.shapes = {name: param.shape[1:] for name, param in template.named_parameters()}
        self.size = sum(shape.numel() for shape in self.shapes.values())

    def initial(self) -> Tensor:
        """The template's own weights as a vector [P]."""
        return torch.cat([param.detach().flatten() for param in self.template[0].parameters()])

    def forward(self, obs: Any, params: Tensor) -> Tensor:
        """obs [num_envs, ...], split evenly over params [members, P]; outputs [num_envs, outputs]."""
        members = len(params)
        parts = params.split([shape.numel() for shape in self.shapes.values()], dim=1)
        weights = {
            name: part.reshape(members, *shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
        return torch.func.functional_call(self.template[0], weights, (split(obs, members),)).flatten(0, 1)


def split(obs: Any, members: int) -> Any:
    """[num_envs, ...] to [members, num_envs / members, ...]."""
    return unflattened(obs, members, -1)
