"""Tests on a CPU that the kernels of every algorithm meet the requirements of CUDA graphs."""

import gc
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from toys import BY_LOOP, Values, equal, toy, train

from rlrun.core.loop import Loop
from rlrun.engine import graphs, tape
from rlrun.engine.accelerate import kernels
from rlrun.engine.arguments import flatten, leaves
from rlrun.engine.graphs import Graphed
from rlrun.engine.operations import call_of
from rlrun.engine.recorder import Call, memory
from rlrun.engine.tape import REFUSED, repeatable
from rlrun.errors import RunError


class Watch(TorchDispatchMode):
    """Records every operation of a kernel call with the shapes of its results, and reasons against a capture."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Any] = []
        self.faults: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        call = Call(op, args, kwargs or {}, out)
        self.done.append((op, [tuple(result.shape) for result in call.results]))
        if any(tag in op.tags for tag in REFUSED) and (
            op is torch.ops.aten._local_scalar_dense or not repeatable(call)
        ):
            self.faults.append(f"{op} waits for the device, draws a number, or makes a shape out of data")
        return out


class Watched:
    """A kernel as written, every call of which is recorded."""

    def __init__(self, method: Callable[..., Any], module: nn.Module):
        self.method, self.module = method, module
        self.calls = 0
        self.done: dict[Any, list[Any]] = {}  # by kind of arguments, like tapes and graphs
        self.places: dict[str, tuple[int, int]] = {}
        self.faults: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with Watch() as watch:
            out = self.method(*args, **kwargs)
        self.calls += 1
        self.faults += watch.faults
        self._same_operations(watch.done, args, kwargs)
        self._same_places()
        return out

    def _same_operations(self, done: list[Any], args: Any, kwargs: Any) -> None:
        kind: list[Any] = []
        flatten((args, kwargs), kind, [])
        if self.calls > 1 and self.done.setdefault(tuple(kind), done) != done:  # the first call may create state
            self.faults.append("two calls with arguments of one shape are not the same operations")

    def _same_places(self) -> None:
        """A graph writes to the memory that parameters and buffers had at its capture, so they must not move."""
        tensors: dict[str, Tensor] = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        for name, tensor in tensors.items():
            place = (memory(tensor), tensor.data_ptr())
            if self.calls > 1 and self.places[name] != place:
                self.faults.append(f"{name} has moved")
            self.places[name] = place


def watched(module: nn.Module) -> dict[str, Watched]:
    """Replaces all kernels of a module tree by recorded ones."""
    found = {}
    for owner, name in kernels(module):
        found[f"{type(owner).__name__}.{name} {id(owner)}"] = kernel = Watched(getattr(owner, name), owner)
        object.__setattr__(owner, name, kernel)
    return found


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (lambda self, x: x * x.sum().item(), "waits for the device"),
        (lambda self, x: x[x > 0], "waits for the device"),
        (lambda self, x: x.nonzero(), "waits for the device"),
        (lambda self, x: x + torch.rand(3), "draws a number"),
        (lambda self, x: x * 2 if self.count.add_(1) % 2 else x, "waits for the device"),
        (lambda self, x: x * 2 if (vars(self).update(calls=self.calls + 1), self.calls)[1] % 2 else x, "not the same"),
        (lambda self, x: setattr(self, "count", self.count + 1), "count has moved"),
    ],
    ids=["item", "mask", "nonzero", "random", "branch", "changing", "moving"],
)
def test_watch_detects_operations_that_no_graph_can_capture(method: Callable[..., Any], fault: str) -> None:
    class Owner(nn.Module):
        calls = 0

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

    owner = Owner()
    kernel = Watched(lambda x: method(owner, x), owner)
    for _ in range(4):
        kernel(torch.randn(3))
    assert any(fault in line for line in kernel.faults)


class Graph(TorchDispatchMode):
    """Simulates a CUDA graph: a capture records operations on fixed memory, and a replay executes them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}  # tensors that the capture changed, and their old content

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = Call(op, args, kwargs or {}, ())
        for tensor in call.given if call.changes else ():
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            self.before.setdefault(memory(tensor), (whole, whole.clone()))
        call.out = op(*args, **(kwargs or {}))
        self.calls.append(call)
        return call.out

    def undo(self) -> None:
        for whole, value in self.before.values():
            whole.copy_(value)

    @torch.no_grad()
    def replay(self) -> None:
        for call in self.calls:
            given = {memory(tensor) for tensor in call.given}
            results = leaves(call_of(call)(*call.args, **call.kwargs))
            for place, result in zip(leaves(call.out), results, strict=True):
                if memory(place) not in given:
                    place.copy_(result.reshape(place.shape))  # a later squeeze_ may have renamed its axes


def capture(run: Callable[[], Any], generators: Iterable[torch.Generator]) -> tuple[Callable[[], None], Any]:
    with Graph() as graph:
        left = run()
    graph.undo()
    return graph.replay, left


# what a part of a variant does that no graph can capture, no tape can replay: tests/engine/test_tape.py
@pytest.mark.parametrize("algo", BY_LOOP)
def test_every_kernel_is_capturable_and_bit_exact_from_a_graph(
    algo: str, build: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "capture", capture)
    monkeypatch.setattr(tape, "CHECKED", (3,))  # replayed earlier than by default, so that eight updates are enough
    plain, graphed = build(eager(algo)), build(eager(algo))
    found = watched(plain.agent) | watched(plain.addons)
    for module, name in kernels(graphed.agent):
        object.__setattr__(module, name, Graphed(getattr(module, name), module))
    assert equal(train(plain, 8).agent.state_dict(), train(graphed, 8).agent.state_dict())
    assert {name: kernel.faults for name, kernel in found.items() if kernel.faults} == {}
    assert [name for name, kernel in found.items() if kernel.calls < 3] == [], "all were looked at"
    for module, name in kernels(graphed.agent):
        kernel = getattr(module, name)
        assert kernel.tapes and not kernel.refused and not kernel.failed, name


def eager(algo: str) -> Values:
    values = toy(algo)
    return values | {"trainer": values["trainer"] | {"engine": "eager"}}


def test_results_of_one_replay_are_not_overwritten_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "capture", capture)
    kernel = Graphed(lambda x: {"sum": x.sum(), "rows": (x * 2, [x + 1])})
    outs = [kernel(torch.full((2,), float(i))) for i in range(tape.CHECKED[-1] + 2)]
    assert kernel.tapes
    assert [out["sum"].item() for out in outs] == [2 * i for i in range(len(outs))]
    assert [out["rows"][1][0].tolist() for out in outs] == [[i + 1.0] * 2 for i in range(tape.CHECKED[-1] + 2)]


def test_no_garbage_is_collected_during_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    collects: list[bool] = []

    def watched(run: Callable[[], Any], generators: Iterable[torch.Generator]) -> Any:
        collects.append(gc.isenabled())
        return capture(run, generators)

    monkeypatch.setattr(graphs, "capture", watched)
    kernel = Graphed(lambda x: x * 2)
    for _ in range(3):
        kernel(torch.ones(2))
    assert collects == [False] and gc.isenabled()


def test_a_kernel_inside_a_kernel_is_part_of_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "capture", capture)
    inner = Graphed(lambda x: x + 1)
    outer = Graphed(lambda x: inner(x) * 2)
    for i in range(tape.CHECKED[-1] + 2):
        assert torch.equal(outer(torch.full((2,), float(i))), torch.full((2,), 2.0 * (i + 1)))
    assert outer.tapes and not outer.refused


def test_a_kernel_that_cannot_be_captured_ends_the_run_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: Callable[[], Any], generators: Iterable[torch.Generator]) -> Any:
        raise RuntimeError("operation not permitted")

    monkeypatch.setattr(graphs, "capture", refuse)
    kernel = Graphed(lambda x: x * 2)
    kernel(torch.ones(2))
    with pytest.raises(RunError) as raised:
        kernel(torch.ones(2))
    assert str(raised.value) == (
        "trainer.engine=cudagraph: Module.<lambda> cannot be captured (RuntimeError: operation not permitted); "
        "resume with trainer.engine=eager"
    )
