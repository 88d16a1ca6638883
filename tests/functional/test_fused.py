"""Operations with private names of torch, compared with their plain alternatives."""

import pytest
import torch

from rlrun.functional import fused


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("scaled", [False, True])
def test_plain_adam_agrees_with_the_fused_operation(decoupled: bool, weight_decay: float, scaled: bool) -> None:
    fast, plain = (fused.adamw_ if decoupled else fused.adam_), fused.plain_adam(decoupled)
    first, second = ([torch.linspace(-1, 1, 9), torch.zeros(9), torch.zeros(9)] for _ in range(2))
    for count in range(1, 40):
        grads, stopped = torch.randn(9), torch.tensor(float(count == 20))
        for step, (param, mean, square) in ((fast, first), (plain, second)):
            before = param.clone()
            step(
                [param], [grads.clone()], [mean], [square], [], [torch.tensor(float(count))], lr=torch.tensor(0.01),
                beta1=0.9, beta2=0.999, weight_decay=weight_decay, eps=1e-8, amsgrad=False, maximize=False,
                grad_scale=torch.tensor(2.0) if scaled else None, found_inf=stopped,
            )  # fmt: skip
            assert torch.equal(before, param) == bool(stopped), "nothing moves where a gradient is not finite"
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)


def test_plain_lerp_has_the_same_bits_as_the_fused_operation() -> None:
    ends = [torch.randn(7), torch.randn(2, 3)]
    one, other = ([torch.ones(7), torch.ones(2, 3)] for _ in range(2))
    fused.lerp_all_(one, ends, 0.3)
    fused.plain_lerp_all_(other, ends, 0.3)
    assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("shape", [0.3, 1.0, 7.5])
def test_plain_gamma_has_the_mean_and_variance_of_its_shape(shape: float) -> None:
    """Both are the shape; also of its logarithm, whose mean is digamma(shape)."""
    drawn = fused.plain_gamma(torch.full((40_000,), shape), generator=torch.Generator().manual_seed(0))
    assert drawn.mean().item() == pytest.approx(shape, rel=0.03)
    assert drawn.var().item() == pytest.approx(shape, rel=0.06)
    log = torch.special.digamma(torch.tensor(shape)).item()
    assert drawn.log().mean().item() == pytest.approx(log, abs=0.05)


def test_plain_gamma_draws_from_its_generator() -> None:
    shapes = torch.tensor([0.5, 2.0, 30.0])
    one, other = (fused.plain_gamma(shapes, generator=torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(one, other) and (one > 0).all()
