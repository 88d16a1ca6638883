"""Hand-written gradients in double precision, compared with finite differences and with autograd of the formulas."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from rlrun.functional.distributions import Normal, SquashedNormal
from rlrun.functional.losses import clipped_surrogate, clipped_value_error, huber


def doubles(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


NOISE, ADVANTAGE = doubles(5, 3, seed=2).detach(), doubles(40, seed=1).detach()


def normal(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    return Normal(mean, log_std).log_prob(action)


def normal_plain(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    return torch.distributions.Normal(mean, log_std.exp()).log_prob(action).sum(-1)


def squashed(mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
    return SquashedNormal(mean, log_std).sample(NOISE)


def squashed_plain(mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
    u = mean + log_std.exp() * NOISE
    gaussian = -0.5 * NOISE**2 - log_std - 0.5 * math.log(2 * math.pi)
    return torch.tanh(u), (gaussian - 2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)


def surrogate(ratio: Tensor) -> Tensor:
    return clipped_surrogate(ratio, ADVANTAGE, 0.2)


def surrogate_plain(ratio: Tensor) -> Tensor:
    return torch.minimum(ratio * ADVANTAGE, ratio.clamp(0.8, 1.2) * ADVANTAGE)


PAIRS: dict[str, tuple[Callable[..., object], Callable[..., object], tuple[Tensor, ...]]] = {
    "normal": (normal, normal_plain, (doubles(5, 3), doubles(5, 3, seed=1), doubles(5, 3, seed=2))),
    "squashed": (squashed, squashed_plain, (doubles(5, 3), doubles(5, 3, seed=1))),
    "surrogate": (surrogate, surrogate_plain, ((doubles(40) * 0.3).exp().detach().requires_grad_(),)),
    "huber": (
        lambda x: huber(x, 0.7),
        lambda x: torch.where(x.abs() < 0.7, 0.5 * x**2, 0.7 * (x.abs() - 0.35)),
        (doubles(40),),
    ),
    "value": (
        lambda v, o: clipped_value_error(v, o, torch.zeros(40, dtype=torch.float64), 0.2),
        lambda v, o: 0.5 * torch.maximum(v**2, (o + (v - o).clamp(-0.2, 0.2)) ** 2),
        (doubles(40), doubles(40, seed=1)),
    ),
    "value_huber": (
        lambda v, o: clipped_value_error(v, o, torch.zeros(40, dtype=torch.float64), 0.2, 0.7),
        lambda v, o: torch.maximum(huber(v, 0.7), huber(o + (v - o).clamp(-0.2, 0.2), 0.7)),
        (doubles(40), doubles(40, seed=1)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_match_finite_differences(name: str) -> None:
    ours, _, inputs = PAIRS[name]
    assert torch.autograd.gradcheck(ours, inputs)


@pytest.mark.parametrize("name", ["normal", "squashed"])
def test_second_order_gradients_match_finite_differences(name: str) -> None:
    ours, _, inputs = PAIRS[name]
    assert torch.autograd.gradgradcheck(ours, inputs)


@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients_match_autograd_of_the_formula(name: str) -> None:
    ours, plain, inputs = PAIRS[name]
    torch.testing.assert_close(ours(*inputs), plain(*inputs))
    weights = [doubles(*out.shape, seed=7).detach() for out in _tuple(ours(*inputs))]
    grads = []
    for function in (ours, plain):
        total = sum((weight * out).sum() for weight, out in zip(weights, _tuple(function(*inputs)), strict=True))
        grads.append(torch.autograd.grad(total, inputs, allow_unused=True))
    torch.testing.assert_close(*grads)


def _tuple(out: object) -> tuple[Tensor, ...]:
    return out if isinstance(out, tuple) else (out,)  # type: ignore[return-value]


def test_normal_log_std_shared_by_rows_gets_the_sum_of_their_gradients() -> None:
    mean, log_std, action = doubles(6, 2), doubles(2, seed=3), doubles(6, 2, seed=4).detach()
    for function in (normal, normal_plain):
        function(action, mean, log_std.expand_as(mean)).sum().backward()
    scaled = (action - mean) / log_std.exp()
    torch.testing.assert_close(log_std.grad, 2 * (scaled**2 - 1).sum(0).detach())
    torch.testing.assert_close(mean.grad, 2 * (scaled / log_std.exp()).detach())
