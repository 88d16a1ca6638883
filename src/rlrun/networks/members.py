"""Checks that the members of an ensemble of networks have weights of their own."""

import torch
from torch import Tensor, nn

from rlrun.types import Obs


def sharing(torso: nn.Module, inputs: list[Obs], members: int) -> str | None:
    """Returns why an ensemble is none, for messages, or None if each of its members has weights of its own.

    The members may share some weights, such as those of convolutions. inputs: of `forward`, some rows each.
    """
    weights = [weight for weight in torso.parameters() if weight.requires_grad]
    if not weights:
        return None  # it is the same for all members, as the flat vector of `linear` is
    out: Tensor = torso(*inputs)
    if out.dim() == 2:
        return (
            f"ignores members={members}, so an ensemble would share its weights; rlrun.networks.linear.Linear has "
            "weights for each member, as has an nn.ModuleList of networks whose outputs are stacked"
        )
    if len(out) != members:
        return f"returns {list(out.shape)} with members={members}; expected [members, batch, features]"
    reached = _reached(out[0], weights)
    for i in range(1, members):
        others = _reached(out[i], weights)
        is_learned = any(other.any() for other in others)
        has_own = any((other & ~weight).any() for weight, other in zip(reached, others, strict=True))
        if is_learned and not has_own:
            if torch.equal(out[0], out[i]):
                return f"members 0 and {i} of an ensemble return the same features, because they share all weights"
            return f"members 0 and {i} of an ensemble share all weights"
    return None


def _reached(features: Tensor, weights: list[nn.Parameter]) -> list[Tensor]:
    """Returns which elements of the weights a gradient of the features [batch, features] reaches."""
    factors = torch.linspace(0.5, 1.5, features.shape[-1], device=features.device)  # the sum alone may be constant
    loss = (features * factors).sum()
    grads = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
    return [grad != 0 for grad in grads]
