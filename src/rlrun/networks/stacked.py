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
        self.shapes: dict[str, torch.Size] = {}
        self.sizes: list[int] = []
        for name, param in template.named_parameters():
            if param.shape[0] != 1:
                raise ConfigError("network: convolutions are not supported in a population; take network=mlp or linear")
            shape = param.shape[1:]
            self.shapes[name] = shape
            self.sizes.append(shape.numel())
        self.size = sum(self.sizes)
        # hidden from the module tree: the template's own weights are never used
        self.template = (template.requires_grad_(False),)

    def initial(self) -> Tensor:
        """Returns the template's own weights as a vector [P]."""
        weights = [param.detach().flatten() for param in self.template[0].parameters()]
        return torch.cat(weights)

    def forward(self, obs: Any, params: Tensor) -> Tensor:
        """Returns outputs [num_envs, outputs] of obs [num_envs, ...], split evenly over params [members, P]."""
        members = len(params)
        parts = params.split(self.sizes, dim=1)
        weights = {}
        for (name, shape), part in zip(self.shapes.items(), parts, strict=True):
            weights[name] = part.reshape(members, *shape)
        inputs = (split(obs, members),)
        outputs = torch.func.functional_call(self.template[0], weights, inputs)
        return outputs.flatten(0, 1)


def split(obs: Any, members: int) -> Any:
    """Returns observations divided among members, [num_envs, ...] -> [members, num_envs / members, ...]."""
    return unflattened(obs, members, -1)
