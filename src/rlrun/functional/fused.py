"""Operations that torch has under private names only, each with a plain form for a torch that lacks the name.

The plain forms are slower. `lerp_all_` gives the same bits on a CPU, Adam agrees to rounding, and `gamma` draws other
numbers of the same distribution.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def plain_adam(decoupled: bool) -> Callable[..., None]:
    """Adam (arXiv 1412.6980) over one flat buffer, as torch's fused operation: nothing moves where `found_inf` is 1.

    `decoupled`: weight decay as in AdamW (arXiv 1711.05101). Every argument before the star is a list of one tensor.
    """

    def step(
        params: Any, grads: Any, first: Any, second: Any, largest: Any, steps: Any, *, lr: Tensor, beta1: float,
        beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool, found_inf: Tensor,
        grad_scale: Tensor | None = None,
    ) -> None:  # fmt: skip
        (param,), (grad,), (first,), (second,), (count,) = params, grads, first, second, steps
        grad = grad if grad_scale is None else grad / grad_scale
        grad = grad + weight_decay * param if weight_decay and not decoupled else grad
        mean = first + (1 - beta1) * (grad - first)
        square = beta2 * second + (1 - beta2) * grad * grad
        size, root = once(lr / (1 - beta1**count)), once((1 - beta2**count).rsqrt())
        kept = param * (1 - lr * weight_decay) if weight_decay and decoupled else param
        moved = kept - size * mean / (square.sqrt() * root + eps)
        for old, new in ((param, moved), (first, mean), (second, square)):
            old.copy_(torch.where(found_inf == 0, new, old))

    return step


def once(number: Tensor) -> Tensor:
    """A number that torch's compiler keeps; else it would compute it again for every element that needs it."""
    return number.as_strided(number.shape, number.stride())


def plain_lerp_all_(tensors: list[Tensor], ends: list[Tensor], weight: float) -> None:
    """Move each tensor in place by `weight` towards its end."""
    for tensor, end in zip(tensors, ends, strict=True):
        tensor.lerp_(end, weight)


def plain_gamma(shape: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One draw of Gamma(shape, rate 1) for each entry, by rejection (Marsaglia and Tsang 2000)."""
    # their method needs a shape of at least 1: gamma(a) is gamma(a + 1) u^(1/a)
    d = shape + 1 - 1 / 3
    c = 1 / (9 * d).sqrt()
    drawn = torch.zeros_like(shape)
    while not drawn.all():
        x = torch.empty_like(shape).normal_(generator=generator)
        u = torch.empty_like(shape).uniform_(generator=generator)
        v = (1 + c * x) ** 3
        accepted = (v > 0) & (u.log() < x**2 / 2 + d * (1 - v + v.clamp(min=1e-30).log()))
        drawn = torch.where((drawn == 0) & accepted, d * v, drawn)
    u = torch.empty_like(shape).uniform_(generator=generator)
    return drawn * u ** (1 / shape)


adam_: Callable[..., Any] = getattr(torch, "_fused_adam_", plain_adam(decoupled=False))
adamw_: Callable[..., Any] = getattr(torch, "_fused_adamw_", plain_adam(decoupled=True))
lerp_all_: Callable[..., Any] = getattr(torch, "_foreach_lerp_", plain_lerp_all_)
gamma: Callable[..., Tensor] = getattr(torch, "_standard_gamma", plain_gamma)
