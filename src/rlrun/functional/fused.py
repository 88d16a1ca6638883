"""Operations that torch offers only under private names, each with a plain fallback for versions without the name.

The fallbacks are slower. On a CPU, `plain_lerp_all_` gives bitwise equal results; `plain_adam` differs by rounding;
`plain_gamma` draws different numbers from the same distribution.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def plain_adam(decoupled: bool) -> Callable[..., None]:
    """Returns a function that takes one step of Adam (arXiv 1412.6980), with the arguments of torch's fused operation.

    Every positional argument of the function is a list of one tensor. If `found_inf` is 1, the step changes nothing.
    `largest`, `amsgrad` and `maximize` are ignored.

    decoupled: whether weight decay is that of AdamW (arXiv 1711.05101).
    """

    def step(
        params: list[Tensor],
        grads: list[Tensor],
        first_moments: list[Tensor],
        second_moments: list[Tensor],
        largest: list[Tensor],
        steps: list[Tensor],
        *,
        lr: Tensor,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        found_inf: Tensor,
        grad_scale: Tensor | None = None,
    ) -> None:
        (param,) = params
        (grad,) = grads
        (first_moment,) = first_moments
        (second_moment,) = second_moments
        (t,) = steps
        if grad_scale is not None:
            grad = grad / grad_scale
        if weight_decay and not decoupled:
            grad = grad + weight_decay * param
        m = first_moment + (1 - beta1) * (grad - first_moment)
        v = beta2 * second_moment + (1 - beta2) * grad * grad
        step_size = once(lr / (1 - beta1**t))
        v_correction = once((1 - beta2**t).rsqrt())
        decayed = param
        if weight_decay and decoupled:
            decayed = param * (1 - lr * weight_decay)
        stepped = decayed - step_size * m / (v.sqrt() * v_correction + eps)
        finite = found_inf == 0
        param.copy_(torch.where(finite, stepped, param))
        first_moment.copy_(torch.where(finite, m, first_moment))
        second_moment.copy_(torch.where(finite, v, second_moment))

    return step


def once(number: Tensor) -> Tensor:
    """Returns a view of `number` that torch's compiler stores in memory.

    Without the view, the compiler fuses the computation of the number into the kernel and repeats it per element.
    """
    return number.as_strided(number.shape, number.stride())


def plain_lerp_all_(
    tensors: list[Tensor],
    ends: list[Tensor],
    weight: float,
) -> None:
    """Moves each tensor in place towards its end: tensor + weight * (end - tensor)."""
    for tensor, end in zip(tensors, ends, strict=True):
        tensor.lerp_(end, weight)


def plain_add_all_(tensors: list[Tensor], addends: list[Tensor]) -> None:
    """Adds to each tensor its addend, in place."""
    for tensor, addend in zip(tensors, addends, strict=True):
        tensor.add_(addend)


def plain_gamma(shape: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Returns one sample of Gamma(shape, rate=1) per entry, by rejection sampling (Marsaglia and Tsang 2000).

    The method needs a shape parameter of at least 1, so Gamma(a) is sampled as Gamma(a + 1) u^(1/a) with uniform u.
    """
    d = shape + 1 - 1 / 3
    c = 1 / (9 * d).sqrt()
    draw = torch.zeros_like(shape)
    while not draw.all():
        x = torch.empty_like(shape).normal_(generator=generator)
        u = torch.empty_like(shape).uniform_(generator=generator)
        v = (1 + c * x) ** 3
        log_v = v.clamp(min=1e-30).log()
        log_bound = x**2 / 2 + d * (1 - v + log_v)
        accepted = (v > 0) & (u.log() < log_bound)
        pending = draw == 0
        draw = torch.where(pending & accepted, d * v, draw)
    u = torch.empty_like(shape).uniform_(generator=generator)
    return draw * u ** (1 / shape)


adam_: Callable[..., object] = getattr(torch, "_fused_adam_", plain_adam(decoupled=False))
adamw_: Callable[..., object] = getattr(torch, "_fused_adamw_", plain_adam(decoupled=True))
lerp_all_: Callable[..., object] = getattr(torch, "_foreach_lerp_", plain_lerp_all_)
add_all_: Callable[..., object] = getattr(torch, "_foreach_add_", plain_add_all_)
gamma: Callable[..., Tensor] = getattr(torch, "_standard_gamma", plain_gamma)
