"""Evaluation of one network with many parameter vectors in a single forward pass."""

from typing import Any

import torch
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.tensors import unflattened
from rlrun.types import Obs


class Stacked(nn.Module):
    """Calls a template network with parameter vectors that the caller passes in. The module has no parameters.

    The template is built with members=1: the passed vectors take the place of that one member.
    """

    def __init__(self, template: nn.Module):
        super().__init__()
        self.shapes: dict[str, torch.Size] = {}
        self.sizes: list[int] = []
        for name, param in template.named_parameters():
            if param.dim() != 3:  # not [members, in, out], as those of convolutions and encoders
                raise ConfigError(
                    "network: convolutions and encoders of algo.representation are not supported by this algorithm, "
                    "which evaluates many parameter vectors together; set network=mlp or network=linear, without "
                    "algo.representation"
                )
            shape = param.shape[1:]
            self.shapes[name] = shape
            self.sizes.append(shape.numel())
        self.size = sum(self.sizes)
        # the tuple hides the template from the module tree, because its own weights are only a starting point
        self.template = (template.requires_grad_(False),)

    def initial(self) -> Tensor:
        """Returns the initial weights of the template as a vector [P]."""
        weights = [param.detach().flatten() for param in self.template[0].parameters()]
        return torch.cat(weights)

    def forward(self, obs: Obs, params: Tensor, *more: Any) -> Tensor:
        """Returns outputs [num_envs, outputs] for obs [num_envs, ...] and params [members, P].

        Every member computes the outputs of num_envs / members consecutive environments. more: further inputs of the
        network, [num_envs, ...] each or None.
        """
        members = len(params)
        parts = params.split(self.sizes, dim=1)
        weights = {}
        for (name, shape), part in zip(self.shapes.items(), parts, strict=True):
            weights[name] = part.reshape(members, *shape)
        inputs = tuple(split(x, members) for x in (obs, *more))
        outputs = torch.func.functional_call(self.template[0], weights, inputs)
        return outputs.flatten(0, 1)


def split(obs: Obs, members: int) -> Obs:
    """Returns observations divided evenly among members: [num_envs, ...] -> [members, num_envs / members, ...].

    None stays None.
    """
    if obs is None:
        return None
    return unflattened(obs, members, -1)
