"""Tapes give the same bits as their kernels, and are not replayed if this cannot be guaranteed."""

import copy
import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toys import BY_PART, toy, train

from rlrun.core.agent import kernel
from rlrun.core.loop import Loop
from rlrun.core.state import Optim, Target
from rlrun.engine import tape
from rlrun.engine.accelerate import kernels
from rlrun.engine.arguments import leaves
from rlrun.engine.tape import Taped

CALLS = tape.CHECKED[-1] + 2  # so that the last two are replayed


class Learner(nn.Module):
    """A small update with everything: forward, backward, clipped Adam, a target network, metrics."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        self.target = Target(self.net, 0.1)
        self.optim = Optim(self.net.parameters(), 0.01, max_grad_norm=0.1)

    def update(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        with torch.no_grad():
            goal = (self.target(batch["next"]) * 0.5).clamp(-2, 2).squeeze(-1) + batch["reward"]
        error = self.net(batch["obs"]).squeeze(-1) - goal
        loss = torch.where(error > 0, error**2, error.exp() - 1).mean()
        norm = self.optim.step(loss)
        self.target.track()
        return {"loss": loss.detach(), "norm": norm, "goal": goal, "parts": [goal.abs().max(), goal.exp()[:2]]}


def batches(count: int, size: int = 5) -> list[dict[str, Tensor]]:
    torch.manual_seed(1)
    return [
        {"obs": torch.randn(size, 3), "next": torch.randn(size, 6)[:, ::2], "reward": torch.randn(size)}
        for _ in range(count)
    ]


def flat(tree: Any) -> list[Tensor]:
    return [tensor.clone() for tensor in leaves(tree)]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_tape_replays_with_the_same_bits() -> None:
    plain, taped = Learner(), Learner()
    calls = itertools.count()  # a state that no check of Python values sees
    replayed = Taped(lambda batch: (next(calls), taped.update(batch))[1])
    for batch in batches(CALLS):
        assert same(flat(plain.update(batch)), flat(replayed(batch)))
    assert same(flat(plain.state_dict()), flat(taped.state_dict()))
    assert next(calls) == tape.CHECKED[-1], "after the last check it runs without the kernel"


def test_tape_results_survive_the_next_call() -> None:
    learner = Learner()
    replayed = Taped(learner.update)
    outs, copies = [], []
    for batch in batches(CALLS):
        outs.append(replayed(batch))
        copies.append(flat(outs[-1]))
    assert all(same(flat(out), copy) for out, copy in zip(outs, copies, strict=True))


def test_tape_does_not_change_its_inputs() -> None:
    replayed = Taped(lambda x: (x * 2).tanh().exp())
    for _ in range(CALLS):
        x = torch.linspace(-1, 1, 7)
        torch.testing.assert_close(replayed(x), torch.exp(torch.tanh(2 * torch.linspace(-1, 1, 7))))
        torch.testing.assert_close(x, torch.linspace(-1, 1, 7))


def test_tape_is_recorded_for_every_shape_and_plain_argument() -> None:
    replayed = Taped(lambda x, factor: x.sum() * factor)
    for _ in range(CALLS):
        for size, factor in ((3, 2.0), (4, 2.0), (3, 5.0), (3, 2), (3, True)):
            assert replayed(torch.ones(size), factor) == size * factor
    assert len(replayed.tapes) == 5


def test_tape_distinguishes_one_tensor_given_twice_from_two() -> None:
    taped = Taped(lambda one, other: one - 2 * other)
    one, other = torch.arange(3.0), torch.ones(3)
    for _ in range(CALLS):
        assert torch.equal(taped(one, one), -one)
        assert torch.equal(taped(one, other), one - 2)
    assert len(taped.tapes) == 2


def test_tape_uses_loaded_weights() -> None:
    first, second = Learner(), Learner()
    replayed = Taped(first.update)
    for batch in batches(CALLS):
        replayed(batch)
    first.load_state_dict(second.state_dict())
    batch = batches(1)[0]
    assert same(flat(replayed(batch)), flat(second.update(batch)))


def test_script_keeps_views_that_are_written_later() -> None:
    def kernel(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        view = y[:2]
        z = y.exp()  # must not reuse the memory of y, because the view is read below
        view.add_(1.0)
        return z, y + 0.0

    replayed = Taped(kernel)
    for _ in range(CALLS):
        x = torch.randn(6)
        assert same(flat(replayed(x)), flat(kernel(x)))


def test_script_overwrites_images_only_with_the_same_strides() -> None:
    conv = nn.Conv2d(3, 3, 1).requires_grad_(False)

    def kernel(x: Tensor) -> dict[str, Tensor]:
        last = conv(x.contiguous(memory_format=torch.channels_last)).relu()
        return {"alike": (last / 2).exp(), "mixed": x.neg().exp() + (last * 3).neg()}

    replayed = Taped(kernel)
    for _ in range(CALLS):
        x = torch.randn(2, 3, 5, 5)
        expected, found = kernel(x), replayed(x)
        assert same(flat(expected), flat(found))
        assert [value.stride() for value in expected.values()] == [value.stride() for value in found.values()]


def test_script_eliminates_common_subexpressions() -> None:
    state = torch.zeros(3)

    def kernel(x: Tensor) -> list[Tensor]:
        once, again = x.exp().sum(), x.exp().sum()
        first, second = torch.zeros(3), torch.zeros(3)  # two memories, because one of them is written to
        before = state * 2
        state.add_(x)
        first.add_(x)
        return [once + again, first, second, before, state * 2]

    replayed = Taped(kernel)
    for _ in range(CALLS):
        x, kept = torch.randn(3), state.clone()
        wanted = flat(kernel(x))
        state.copy_(kept)
        assert same(flat(replayed(x)), wanted)
    [[(_, script)]] = replayed.tapes.values()
    functions = [value for name, value in script.__globals__.items() if name[0] == "f"]
    assert (functions.count(torch.exp), functions.count(torch.mul)) == (1, 2)


def test_script_tells_calls_with_gradients_from_those_without() -> None:
    """Without gradients, some versions of the LSTM return fewer tensors than the backward pass needs."""
    lstm = torch.nn.LSTM(3, 2)
    weights = [*lstm.parameters()]

    def kernel(x: Tensor, *start: Tensor) -> list[Tensor]:
        with torch.no_grad():
            before, _ = lstm(x, start)
        after, _ = lstm(x, start)
        return [before, *torch.autograd.grad(after.sum(), weights)]

    replayed = Taped(kernel)
    for _ in range(CALLS):
        inputs = torch.randn(4, 5, 3), torch.randn(1, 5, 2), torch.randn(1, 5, 2)
        assert same(flat(replayed(*inputs)), flat(kernel(*inputs)))


def test_script_fuses_consecutive_reshapes() -> None:
    def kernel(x: Tensor) -> list[Tensor]:
        back = (x * 2).view(2, 3, 1).squeeze(-1)  # what it was
        back += 1
        rows = x.exp().sum(0, keepdim=True).view(3)
        return [back, rows, x[:, 0].unsqueeze(-1).unsqueeze(0), x.neg().sum((0, 1), keepdim=True).view(1)]

    replayed = Taped(kernel)
    for _ in range(CALLS):
        x = torch.randn(3, 2).t()  # a tensor that is not contiguous
        assert same(flat(replayed(x)), flat(kernel(x)))
    [[(_, script)]] = replayed.tapes.values()
    functions = [value for name, value in script.__globals__.items() if name[0] == "f"]
    assert (functions.count(torch.Tensor.view), functions.count(torch.sum)) == (2, 2)
    assert not {torch.squeeze, torch.unsqueeze}.intersection(functions)


def test_script_folds_constants_that_follow_from_shapes() -> None:
    def kernel(x: Tensor) -> list[Tensor]:
        share = torch.ones_like(x).expand(2, 3) / 6
        counts = torch.zeros_like(x)
        counts.add_(x)  # written to, so it is allocated in every call
        return [x * share + torch.arange(3), counts, torch.zeros_like(x)]

    replayed = Taped(kernel)
    for _ in range(CALLS):
        x = torch.randn(3)
        out = replayed(x)
        assert same(flat(out), flat(kernel(x)))
        out[2].fill_(7.0)  # the returned tensor belongs to the caller
    [[(_, script)]] = replayed.tapes.values()
    functions = [value for name, value in script.__globals__.items() if name[0] == "f"]
    assert (functions.count(torch.div), functions.count(torch.zeros_like)) == (0, 2)
    assert torch.ops.aten.arange.default not in functions


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda x: x * x.sum().item(), "depends on more than shapes"),
        (lambda x: x[x > 0], "depends on more than shapes"),
        (lambda x: x + torch.rand(3), "depends on more than shapes"),
        (lambda x: x.nonzero(), "depends on more than shapes"),
        (lambda x: (x, 1.5), "something other than tensors"),
        (lambda x: x * torch.ones(3, requires_grad=True), "gradients flow"),
    ],
    ids=["item", "mask", "random", "nonzero", "number", "gradient"],
)
def test_tape_refuses_kernels_that_cannot_be_replayed(kernel: Callable[..., Any], reason: str) -> None:
    replayed = Taped(kernel)
    for _ in range(CALLS):
        replayed(torch.randn(3))
    assert [reason in why for why in replayed.refused.values()] == [True] and not replayed.tapes


def test_tape_replays_indexing_by_integers() -> None:
    replayed = Taped(lambda x, index: x[index])
    for start in range(CALLS):
        assert torch.equal(
            replayed(torch.arange(20.0), torch.arange(start, start + 3)), torch.arange(start, start + 3.0)
        )
    assert replayed.tapes and not replayed.refused


def test_tape_records_at_most_max_variants() -> None:
    replayed = Taped(lambda x, factor: x * factor)
    for index in range(3 * tape.MAX_VARIANTS):
        assert torch.equal(replayed(torch.ones(2), float(index)), torch.full((2,), float(index)))
    assert len(replayed.calls) == tape.MAX_VARIANTS


def test_a_kernel_inside_a_kernel_is_part_of_its_tape() -> None:
    inner = Taped(lambda x: x + 1)
    outer = Taped(lambda x: inner(x) * 2)
    for _ in range(CALLS):
        assert torch.equal(outer(torch.zeros(2)), torch.full((2,), 2.0))
    assert outer.tapes and not outer.refused


def test_kernels_are_found_in_base_classes_and_an_override_needs_its_own_mark() -> None:
    class Base(nn.Module):
        @kernel
        def update(self, x: Tensor) -> Tensor:
            return x

        @kernel
        def plan(self, x: Tensor) -> Tensor:
            return x

    class Derived(Base):
        def plan(self, x: Tensor) -> Tensor:
            return x

    agent = nn.Sequential(Derived(), nn.Linear(1, 1), Base())
    assert kernels(agent) == [(agent[0], "update"), (agent[2], "plan"), (agent[2], "update")]


@pytest.mark.parametrize("algo", BY_PART)
def test_every_algorithm_learns_the_same_bits_taped_as_eager(
    algo: str, build: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tape, "CHECKED", (3,))  # replayed earlier than by default, so that five updates are enough
    loops = []
    for engine in ("eager", "auto"):
        values = toy(algo)
        values["trainer"] = {**values["trainer"], "engine": engine}
        loops.append(train(build(values), 5))
    eager, taped = (loop.state_dict() for loop in loops)
    assert same(flat(eager), flat(taped))
    for module, name in kernels(loops[1].agent):
        method = getattr(module, name)
        method = method if isinstance(method, Taped) else method.method
        assert not method.refused, f"{name} breaks a promise of kernels: {method.refused}"
        assert not method.failed, f"{name} {method.failed}"
        assert method.tapes or max(method.calls.values(), default=0) < 3, f"{name} was never replayed"


def test_tape_draws_from_random_streams() -> None:
    def act(source: torch.Generator, x: Tensor) -> Tensor:
        return x + torch.randn(3, generator=source) * torch.rand(3, generator=source)

    sources = [torch.Generator().manual_seed(5) for _ in range(2)]
    replayed = Taped(lambda x: act(sources[1], x))
    for _ in range(CALLS):
        assert torch.equal(replayed(torch.zeros(3)), act(sources[0], torch.zeros(3)))
    assert replayed.tapes
    sources[0].manual_seed(9)
    sources[1].manual_seed(9)
    assert torch.equal(replayed(torch.zeros(3)), act(sources[0], torch.zeros(3))), "a stream that is set back is seen"


def test_tape_copy_has_separate_memory_and_tapes() -> None:
    learner = Learner()
    object.__setattr__(learner, "update", Taped(learner.update))
    for batch in batches(CALLS):
        learner.update(batch)
    before = flat(learner.state_dict())
    twin = copy.deepcopy(learner)
    for batch in batches(CALLS):
        twin.update(batch)
    assert same(before, flat(learner.state_dict()))
    assert not same(before, flat(twin.state_dict()))


def test_tape_of_a_copied_agent_updates_the_copy(build: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "CHECKED", (3,))
    loop: Any = train(build(toy("sac")), 8)
    twin = copy.deepcopy(loop.agent)
    before = flat(loop.agent.state_dict())
    batch, ctx = loop.buffer.sample(8), loop.context(loop.buffer)
    for _ in range(5):
        twin.update(batch, ctx)
        twin.act(loop.obs, loop.carry, explore=True)
    assert same(before, flat(loop.agent.state_dict())) and not same(before, flat(twin.state_dict()))


def test_recording_does_not_load_the_compiler() -> None:
    program = """
import sys, torch
from rlrun.engine.tape import Taped
sine = Taped(torch.sin)
for _ in range(11):
    sine(torch.ones(2))
print(len(sine.tapes), "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
