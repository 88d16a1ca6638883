"""Recordings are compared with their kernels: kernels with Python state are detected, and run eager."""

import copy
import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting_kernel import count_calls_of_dqn
from torch import Tensor, nn
from toys import equal, toy, train

from rlrun.core.loop import Loop
from rlrun.engine import tape
from rlrun.engine.inductor import InductorKernel
from rlrun.engine.tape import Taped
from rlrun.engine.trial import same_bits

CALLS = 20


class Kernel(nn.Module):
    """Changes a weight, and has a counter that would be constant in a recording."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("late", torch.zeros(()))
        self.calls = 0
        self.last = torch.zeros(3)
        self.history: list[int] = []

    @torch.no_grad()
    def plain(self, x: Tensor, coef: float = 0.5) -> Tensor:
        self.seen.add_(1)
        self.weight.add_(x * coef * 0.9**self.seen)
        return self.weight.sum()

    def counts(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.plain(x, 0.9**self.calls)

    def keeps(self, x: Tensor) -> Tensor:
        self.last = x * 2
        return self.plain(x)

    def appends(self, x: Tensor) -> Tensor:
        self.history.append(len(x))
        return self.plain(x)


def outside(power: Callable[[int], float]) -> Callable[[Kernel, Tensor], Tensor]:
    """Returns a method whose counter is no Python value; `power` is a function of the number of the call."""
    counts = defaultdict(lambda: itertools.count(1))

    def method(self: Kernel, x: Tensor) -> Tensor:
        return self.plain(x, power(next(counts[id(self)])))

    return method


def both(method: Callable[[Kernel, Tensor], Tensor], calls: int = CALLS) -> tuple[Taped, Kernel, Kernel]:
    """Returns a kernel with its recording and one without, after calls with the same inputs and equal results."""
    eager, taped = Kernel(), Kernel()
    replayed = Taped(method.__get__(taped), taped)
    for i in range(calls):
        x = torch.full((3,), float(i))
        assert torch.equal(method(eager, x), replayed(x)), f"call {i + 1}"
    return replayed, eager, taped


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (Kernel.counts, "it changes Kernel.calls"),
        (Kernel.keeps, "it changes Kernel.last"),
        (Kernel.appends, "it changes Kernel.history"),
        (outside(lambda call: 0.9**call), "its recording gives different results"),
        (outside(lambda call: 1.0 if call < 7 else 0.5), "its recording gives different results"),
    ],
    ids=["counter", "tensor", "list", "iterator", "later"],
)
def test_trial_detects_python_state_and_trains_as_eager(
    method: Callable[[Kernel, Tensor], Tensor], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    replayed, eager, taped = both(method)
    assert equal(eager.state_dict(), taped.state_dict())
    assert (eager.calls, eager.history) == (taped.calls, taped.history)
    assert replayed.failed is not None and replayed.failed.startswith(why) and not replayed.tapes
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith(f"Kernel.{method.__name__} runs as written: {why}") and "\n" not in line
    assert "Python state" in line and "trainer.engine=eager" in line


def test_trial_detects_a_tensor_that_is_written_later() -> None:
    """The result of the method does not show the write."""
    taped, calls = Kernel(), itertools.count(1)

    def method(x: Tensor) -> Tensor:
        if next(calls) > 4:
            taped.late.add_(1)
        return taped.plain(x)

    replayed = Taped(method, taped)
    for _ in range(CALLS):
        replayed(torch.ones(3))
    assert replayed.failed == "it changes tensors that it did not change when it was recorded"
    assert taped.late == CALLS - 4


def test_trial_accepts_kernel_state_in_tensors() -> None:
    replayed, eager, taped = both(Kernel.plain)
    assert equal(eager.state_dict(), taped.state_dict())
    assert replayed.failed is None and len(replayed.tapes) == 1 and not replayed.trials


def test_trial_restores_parameters_inputs_and_random_streams() -> None:
    """The replay of a check changes nothing, wherever it writes."""
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    weights = [nn.Parameter(torch.ones(4)) for _ in range(2)]

    def step(which: int, x: Tensor) -> Tensor:
        with torch.no_grad():
            view = weights[which][1:]
            view.add_(torch.randn(3, generator=generators[which]))
            x.mul_(2)
            return view + x

    replayed = Taped(lambda x: step(1, x))
    for _ in range(CALLS):
        x, y = torch.ones(3), torch.ones(3)
        assert torch.equal(step(0, x), replayed(y)) and torch.equal(x, y)
    assert torch.equal(*weights) and replayed.tapes


def test_same_bits_compares_nan_and_strided_tensors() -> None:
    nan = torch.tensor([math.nan, 0.0])
    assert same_bits([nan], [nan.clone()])
    assert not same_bits([torch.tensor([0.0])], [torch.tensor([-0.0])])
    assert not same_bits([torch.zeros(2)], [torch.zeros(1, 2)])
    assert not same_bits([torch.zeros(2)], [torch.zeros(2, dtype=torch.int32)])
    columns = torch.arange(6.0).view(2, 3)
    assert same_bits([columns[:, 0]], [columns[:, 0].clone()])
    assert not same_bits([columns[:, 0]], [columns[:, 1]])
    replayed = Taped(lambda x: x.log())
    for _ in range(CALLS):
        replayed(torch.tensor([-1.0]))
    assert replayed.tapes


def test_trial_accepts_a_scalar_tensor_made_in_each_call() -> None:
    def method(x: Tensor) -> Tensor:
        total = torch.tensor(0.5)
        total += x.sum()  # in place, in memory that was just allocated
        return total * 1

    replayed = Taped(method)
    for i in range(CALLS):
        assert replayed(torch.full((2,), float(i))) == 0.5 + 2 * i


def test_trial_checks_every_argument_shape() -> None:
    checked = []

    class Noted(Taped):
        def _check(self, key: Any, *rest: Any) -> Any:
            checked.append((self.calls[key], key))
            return super()._check(key, *rest)

    replayed = Noted(lambda x: x * 2)
    for _ in range(CALLS):
        for size in (2, 3):
            replayed(torch.ones(size))
    assert [call for call, _ in checked] == [3, 3, 10, 10]
    assert len({key for _, key in checked}) == 2


def test_inductor_kernel_refuses_changed_attributes(caplog: pytest.LogCaptureFixture) -> None:
    module = Kernel()
    compiled = InductorKernel(module.counts, module)
    for _ in range(3):
        compiled(torch.ones(3))
    assert compiled.failed == "it changes Kernel.calls" and not compiled.tapes
    assert len(caplog.records) == 1 and module.seen == 3


def test_trial_plugin_kernel_with_a_counter_trains_as_eager(
    build: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    count_calls_of_dqn(monkeypatch)
    states = []
    for engine in ("eager", "auto"):
        loop = train(build(toy("dqn", **{"trainer.engine": engine})), tape.CHECKED[-1] + 5)
        states.append(copy.deepcopy(loop.agent.state_dict()))
    assert equal(*states)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("DQN.update_q runs as written: it changes DQN.calls")
