"""Optimisers, compared with torch's; target networks; running statistics."""

from typing import Any

import pytest
import torch
from torch import nn

from rlrun.core.state import (
    OPTIMIZERS,
    Optim,
    RMSprop,
    RunningMoments,
    Target,
    set_parameters,
    step_together,
)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], [False, False, True, False, False, True]),  # updates
        ([2, 4, 6, 8, 10, 12], [False, True, True, False, True, True]),  # steps of two environments
        ([7, 7, 8, 9], [True, False, False, True]),  # several updates at one step
    ],
)
def test_polyak_averaging_happens_once_in_every_period(counts: list[int], expected: list[bool]) -> None:
    source = nn.Linear(2, 2)
    target = Target(source, 1.0)
    moved = []
    for count in counts:
        with torch.no_grad():
            source.bias.add_(1.0)
        before = target.module.bias.clone()
        target.track_every(3, count)
        moved.append(not torch.equal(before, target.module.bias))
    assert moved == expected


def nets() -> tuple[nn.Module, nn.Module]:
    """Two equal networks."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    second = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    second.load_state_dict(first.state_dict())
    return first, second


def loss_of(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return ((net(x) - x.sum(-1, keepdim=True)) ** 2).sum()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("max_grad_norm", [None, 0.5, 1e6])
@pytest.mark.parametrize("options", [{}, {"betas": (0.5, 0.9), "eps": 1e-5}], ids=["usual", "other"])
def test_optim_takes_the_steps_of_torch(weight_decay: float, max_grad_norm: float | None, options: Any) -> None:
    ours, theirs = nets()
    optim = Optim(ours.parameters(), 0.01, weight_decay=weight_decay, max_grad_norm=max_grad_norm, **options)
    adam = torch.optim.AdamW if weight_decay else torch.optim.Adam
    reference = adam(theirs.parameters(), 0.01, weight_decay=weight_decay, **options)
    for _ in range(20):
        x = torch.randn(5, 3)
        norm = optim.step(loss_of(ours, x))
        reference.zero_grad()
        loss_of(theirs, x).backward()
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), max_grad_norm or float("inf"))
        torch.testing.assert_close(norm, expected)
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("max_grad_norm", [None, 0.5])
def test_rmsprop_takes_the_steps_of_torch(max_grad_norm: float | None) -> None:
    ours, theirs = nets()
    optim = RMSprop(ours.parameters(), 0.01, eps=1e-5, max_grad_norm=max_grad_norm)
    reference = torch.optim.RMSprop(theirs.parameters(), 0.01, alpha=0.99, eps=1e-5)
    for _ in range(20):
        x = torch.randn(5, 3)
        optim.step(loss_of(ours, x))
        reference.zero_grad()
        loss_of(theirs, x).backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), max_grad_norm or float("inf"))
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_a_gradient_that_is_not_finite_moves_nothing_then_or_later(kind: type[Optim]) -> None:
    for bad in (float("nan"), float("inf"), float("-inf")):
        net, _ = nets()
        optim = kind(net.parameters(), 0.01)
        optim.step(loss_of(net, torch.randn(5, 3)))
        before = {name: value.clone() for name, value in (net.state_dict() | optim.state_dict()).items()}
        grads = torch.ones_like(optim.flat)
        grads[3] = bad
        optim.apply(grads)
        assert optim.fault == 1
        optim.apply(torch.ones_like(optim.flat))
        after = net.state_dict() | optim.state_dict()
        assert all(torch.equal(after[name], value) for name, value in before.items() if name != "fault")


def test_a_gradient_that_is_not_finite_moves_nothing_when_norms_are_clipped() -> None:
    net, _ = nets()
    optim = Optim(net.parameters(), 0.01, max_grad_norm=0.5)
    before = optim.flat.clone()
    optim.apply(torch.full_like(before, float("nan")))
    assert torch.equal(optim.flat, before)


def test_only_its_own_parameters_get_gradients() -> None:
    first, second = nets()
    optim = Optim(first.parameters(), 0.01)
    untouched = [param.clone() for param in second.parameters()]
    optim.step(loss_of(first, torch.randn(5, 3)) + loss_of(second, torch.randn(5, 3)))
    assert all(param.grad is None for param in (*first.parameters(), *second.parameters()))
    assert all(torch.equal(param, old) for param, old in zip(second.parameters(), untouched, strict=True))


def test_step_together_takes_the_step_of_every_optimiser() -> None:
    x = torch.randn(5, 3)
    moved = []
    for together in (True, False):
        pair = nets()
        optims = [Optim(net.parameters(), rate) for net, rate in zip(pair, (0.01, 0.1), strict=True)]
        for _ in range(2):
            losses = (loss_of(pair[0], x), 2 * loss_of(pair[1], x))
            if together:
                step_together(optims, losses[0] + losses[1])
                continue
            for optim, loss in zip(optims, losses, strict=True):
                optim.step(loss)
        moved.append([optim.flat for optim in optims])
    assert all(torch.equal(one, other) for one, other in zip(*moved, strict=True))


def test_parameters_stay_views_of_the_flat_memory_when_weights_are_loaded() -> None:
    net, other = nets()
    optim = Optim(net.parameters(), 0.01)
    with torch.no_grad():
        for param in other.parameters():
            param.add_(1)
    net.load_state_dict(other.state_dict())
    assert torch.equal(optim.flat, nn.utils.parameters_to_vector(other.parameters()))
    optim.apply(torch.ones_like(optim.flat))
    assert not torch.equal(next(net.parameters()), next(other.parameters()))


def test_optimiser_resumes_bit_for_bit() -> None:
    first, second = nets()
    optim, copy = Optim(first.parameters(), 0.01), Optim(second.parameters(), 0.5)
    batches = torch.randn(6, 5, 3)
    for x in batches[:3]:
        optim.step(loss_of(first, x))
    second.load_state_dict(first.state_dict())
    copy.load_state_dict(optim.state_dict())
    for x in batches[3:]:
        optim.step(loss_of(first, x)), copy.step(loss_of(second, x))
    assert torch.equal(optim.flat, copy.flat)
    assert optim.steps == 6


def test_gradients_can_be_differentiated_again() -> None:
    param = nn.Parameter(torch.tensor([2.0, 3.0]))
    grads = Optim([param], 0.1).grads((param**3).sum(), create_graph=True)
    assert grads.tolist() == [12.0, 27.0]
    (second,) = torch.autograd.grad(grads.sum(), param)
    assert second.tolist() == [12.0, 18.0]


@pytest.mark.parametrize("tau", [0.1, 0.9, 1.0])
def test_polyak_averaging_moves_a_target_by_tau_in_place(tau: float) -> None:
    source, _ = nets()
    target = Target(source, tau)
    memory = [param.data_ptr() for param in target.parameters()]
    optim = Optim(source.parameters(), 0.1)  # copies the source's weights into new memory
    old = [param.clone() for param in target.parameters()]
    optim.apply(torch.ones_like(optim.flat))
    assert all(torch.equal(param, before) for param, before in zip(target.parameters(), old, strict=True))
    target.track()
    for slow, before, fast in zip(target.parameters(), old, source.parameters(), strict=True):
        torch.testing.assert_close(slow, before + tau * (fast - before))
        assert tau < 1 or torch.equal(slow, fast)
    assert memory == [param.data_ptr() for param in target.parameters()]
    assert not any(param.requires_grad for param in target.parameters())
    x = torch.randn(2, 3)
    assert torch.equal(target(x), target.module(x))


def test_running_moments_of_masked_rows_are_those_of_the_others() -> None:
    one, two = RunningMoments((3,)), RunningMoments((3,))
    one.add_masked(torch.randn(4, 2, 3), torch.zeros(4, 2))
    assert torch.equal(one.mean, two.mean) and torch.equal(one.var, two.var)
    for _ in range(3):
        rows, mask = torch.randn(4, 2, 3) + 5.0, (torch.rand(4, 2) > 0.4).float()
        one.add_masked(rows, mask)
        two.add(rows[mask > 0])
    one.add_masked(torch.randn(4, 2, 3), torch.zeros(4, 2))
    assert one.count == two.count
    torch.testing.assert_close(one.mean, two.mean)
    torch.testing.assert_close(one.var, two.var)


def test_running_moments_are_those_of_all_rows_together() -> None:
    rows = torch.randn(1000, 3) * torch.tensor([1.0, 10.0, 0.1]) + torch.tensor([0.0, 1e4, -5.0])
    moments = RunningMoments((3,))
    for part in rows.split([1, 2, 97, 400, 500]):
        moments.add(part)
    torch.testing.assert_close(moments.mean, rows.double().mean(0))
    torch.testing.assert_close(moments.var, rows.double().var(0, correction=0))
    assert moments.count == 1000


def test_running_moments_take_merges_and_empties_another() -> None:
    rows = torch.randn(100, 2)
    live, pending = RunningMoments((2,)), RunningMoments((2,))
    live.take(pending)
    assert live.count == 0 and (live.var == 1).all()
    for part in rows.split(20):
        pending.add(part)
        live.take(pending)
        assert pending.count == 0 and not pending.mean.any() and (pending.var == 1).all()
    torch.testing.assert_close(live.mean, rows.double().mean(0))
    torch.testing.assert_close(live.var, rows.double().var(0, correction=0))
    before = {name: value.clone() for name, value in live.state_dict().items()}
    live.take(pending)
    assert all(torch.equal(value, before[name]) for name, value in live.state_dict().items()), "the other was empty"


def test_set_parameters_leaves_parameters_with_their_optimiser() -> None:
    net = nn.Linear(3, 2)
    optim = Optim(net.parameters(), 0.1)
    vector = torch.arange(8.0)
    set_parameters(net, vector)
    assert torch.equal(nn.utils.parameters_to_vector(net.parameters()), vector)
    assert torch.equal(optim.flat, vector), "the optimiser moves the same numbers"
    with pytest.raises(ValueError, match=r"^a vector of 8 numbers is needed, not one of shape \[7\]"):
        set_parameters(net, vector[1:])
