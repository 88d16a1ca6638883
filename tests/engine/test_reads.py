"""A recording holds Python values as constants: it is replayed only while the kernel would read the same values."""

import math
from collections.abc import Callable
from cProfile import Profile
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rlrun
from rlrun.core.random import Stream
from rlrun.engine import tape
from rlrun.engine.inductor import InductorKernel
from rlrun.engine.reads import Reads, Running, is_plain, same
from rlrun.engine.script import Script
from rlrun.engine.tape import MAX_TAPES, WORTHWHILE, Taped

CALLS = tape.CHECKED[-1] + 2  # so that the last two are replayed
SCALE = 1.0
ACTIVATION = torch.clone
SCALES = {"a": [1.0, 1.0]}


@dataclass
class Inner:
    scale: float = 1.0


@dataclass
class Settings:
    inner: Inner = field(default_factory=Inner)
    options: dict[str, Any] = field(default_factory=lambda: {"scale": 1.0})


class Slots:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 1.0

    def scaled(self, x: Tensor) -> Tensor:
        return x * self.scale


class Reader(nn.Module):
    """Has one kernel for each place where a number can be held. Every kernel returns x times the number."""

    class_scale = 1.0
    frozen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.part = nn.LeakyReLU(1.0)
        self.parts = nn.ModuleList([nn.LeakyReLU(1.0)])
        self.cfg = Settings()
        self.scales = [1.0, {"b": (1.0, [1.0])}]
        self.plain = SimpleNamespace(scale=1.0, deep=SimpleNamespace(scale=1.0))
        self.slots = Slots()
        self.array = np.ones(1)
        self.activation: Callable[[Tensor], Tensor] = torch.clone
        self.tensor = torch.ones(())
        self.register_buffer("frozen", torch.ones(()))
        self.flags = {"on"}
        self.partial = partial(scaled, scales=[1.0])
        self.bound = Slots().scaled

        def enclosed(x: Tensor) -> Tensor:
            return x * scale

        def set_scale(value: float) -> None:
            nonlocal scale
            scale = value

        scale = 1.0
        self.enclosed, self.set_scale = enclosed, set_scale

    @property
    def computed(self) -> float:
        return self.plain.deep.scale

    def number(self, name: str) -> float:
        value: float = getattr(self, name)
        return value

    def pick(self) -> Any:
        return self.plain


def with_default(x: Tensor, scales: list[float] = [1.0]) -> Tensor:  # noqa: B006
    return x * scales[0]


def scaled(x: Tensor, scales: list[float]) -> Tensor:
    return x * scales[0]


def helper(settings: Settings, x: Tensor) -> Tensor:
    return x * settings.inner.scale


def put(holder: Any, name: str) -> Callable[[Reader, float], None]:
    """Returns a function that sets an attribute of what `holder` returns for a module."""
    return lambda module, value: setattr(holder(module), name, value)


def put_item(holder: Any, key: Any) -> Callable[[Reader, float], None]:
    """Returns a function that sets an entry of what `holder` returns for a module."""
    return lambda module, value: holder(module).__setitem__(key, value)


PLACES: dict[str, tuple[Callable[[Reader, Tensor], Tensor], Callable[[Reader, float], None]]] = {
    "attribute": (lambda m, x: x * m.scale, put(lambda m: m, "scale")),
    "getattr": (lambda m, x: x * getattr(m, "scale", 2.0), put(lambda m: m, "scale")),
    "new attribute": (lambda m, x: x * getattr(m, "late", 1.0), put(lambda m: m, "late")),
    "text": (lambda m, x: x * m.number("scale"), put(lambda m: m, "scale")),
    "vars": (lambda m, x: x * vars(m)["scale"], put(lambda m: m, "scale")),
    "class": (lambda m, x: x * m.class_scale, put(lambda m: type(m), "class_scale")),
    "submodule": (lambda m, x: m.part(-x).neg(), put(lambda m: m.part, "negative_slope")),
    "module list": (lambda m, x: m.parts[0](-x).neg(), put(lambda m: m.parts[0], "negative_slope")),
    "dataclass": (lambda m, x: x * m.cfg.inner.scale, put(lambda m: m.cfg.inner, "scale")),
    "new dataclass": (lambda m, x: x * m.cfg.inner.scale, lambda m, value: setattr(m.cfg, "inner", Inner(value))),
    "argument": (lambda m, x: helper(m.cfg, x), put(lambda m: m.cfg.inner, "scale")),
    "dict": (lambda m, x: x * m.cfg.options["scale"], put_item(lambda m: m.cfg.options, "scale")),
    "list": (lambda m, x: x * m.scales[0], put_item(lambda m: m.scales, 0)),
    "nested": (lambda m, x: x * m.scales[1]["b"][1][0], put_item(lambda m: m.scales[1]["b"][1], 0)),
    "longer list": (lambda m, x: x * len(m.scales), lambda m, value: m.scales.append(value)),
    "set": (lambda m, x: x * len(m.flags), lambda m, value: m.flags.add(value)),
    "object": (lambda m, x: x * m.plain.deep.scale, put(lambda m: m.plain.deep, "scale")),
    "returned object": (lambda m, x: x * m.pick().scale, put(lambda m: m.plain, "scale")),
    "property": (lambda m, x: x * m.computed, put(lambda m: m.plain.deep, "scale")),
    "slots": (lambda m, x: x * m.slots.scale, put(lambda m: m.slots, "scale")),
    "array": (lambda m, x: x * float(m.array[0]), put_item(lambda m: m.array, 0)),
    "global": (lambda m, x: x * SCALE, lambda m, value: globals().__setitem__("SCALE", value)),
    "global dict": (lambda m, x: x * SCALES["a"][1], put_item(lambda m: SCALES["a"], 1)),
    "global function": (lambda m, x: ACTIVATION(x), lambda m, value: globals().__setitem__("ACTIVATION", torch.neg)),
    "partial": (lambda m, x: m.partial(x), put_item(lambda m: m.partial.keywords["scales"], 0)),
    "bound method": (lambda m, x: m.bound(x), put(lambda m: m.bound.__self__, "scale")),
    "default": (lambda m, x: with_default(x), put_item(lambda m: with_default.__defaults__[0], 0)),
    "closure": (lambda m, x: m.enclosed(x), lambda m, value: m.set_scale(value)),
    "function": (lambda m, x: m.activation(x), lambda m, value: setattr(m, "activation", torch.neg)),
    "tensor": (lambda m, x: x * m.tensor, lambda m, value: setattr(m, "tensor", torch.tensor(value))),
    "buffer": (lambda m, x: x * m.frozen, lambda m, value: setattr(m, "frozen", torch.tensor(value))),
    "data": (lambda m, x: x * m.frozen, lambda m, value: setattr(m.frozen, "data", torch.tensor(value))),
}


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores what is outside of a module."""
    monkeypatch.setattr(Reader, "class_scale", 1.0)
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    monkeypatch.setitem(globals(), "ACTIVATION", torch.clone)
    with_default.__defaults__[0][0] = 1.0
    monkeypatch.setitem(SCALES, "a", [1.0, 1.0])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", [1, 2, 5, CALLS], ids="before call {}".format)
def test_recording_follows_a_number_that_changes_between_calls(place: str, call: int) -> None:
    method, change = PLACES[place]
    module = Reader()
    replayed = Taped(lambda x: method(module, x), module)
    x = torch.arange(3.0)
    for count in range(2 * CALLS):
        if count == call:
            change(module, 0.5)
        assert torch.equal(replayed(x), method(module, x)), count
    assert replayed.failed is None and replayed.replays > 0
    assert not torch.equal(replayed(x), x), "the change has no effect"


def test_recording_of_an_earlier_value_is_replayed_when_the_value_returns() -> None:
    module = Reader()
    replayed = Taped(lambda x: x * module.scale, module)
    for scale in (1.0, 2.0, 1.0, 2.0):
        module.scale = scale
        for _ in range(CALLS):
            assert replayed(torch.ones(())) == scale
    (tapes,) = replayed.tapes.values()
    assert len(tapes) == 2 and replayed.replays == 2 + 3 + 2 * CALLS


def test_kernel_whose_values_keep_changing_runs_as_written(caplog: pytest.LogCaptureFixture) -> None:
    module = Reader()
    replayed = Taped(lambda x: x * module.scale, module)
    for count in range(3 * MAX_TAPES):
        module.scale = 0.9**count
        assert replayed(torch.ones((), dtype=torch.float64)) == module.scale
    assert replayed.failed is not None and replayed.failed.startswith("Reader.scale keeps changing")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "self.register_buffer" in line and "Scheduled" in line and "\n" not in line


def test_kernel_whose_values_change_rarely_is_recorded_again_without_limit() -> None:
    module = Reader()
    replayed = Taped(lambda x, y: (x + y) * module.scale, module)
    for count in range(2 * MAX_TAPES):
        module.scale = float(count)
        for _ in range(CALLS + WORTHWHILE):
            assert replayed(torch.ones(()), torch.zeros(())) == count
        for _ in range(CALLS):  # a second kind of arguments, which is recorded again too
            assert replayed(torch.ones(2), torch.zeros(())).tolist() == [count, count]
    assert replayed.failed is None
    assert max(map(len, replayed.tapes.values())) == MAX_TAPES


def test_container_may_grow_while_its_entries_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a thread or the handler of a signal, such as that of a profiler, may let it."""

    class Grows(type):
        @property
        def __module__(cls) -> str:  # which is read for every entry
            SCALES[str(len(SCALES))] = [1.0]
            return "elsewhere"

    monkeypatch.setitem(SCALES, "one", Grows("Entry", (), {})())
    monkeypatch.setitem(SCALES, "two", [1.0])
    replayed = Taped(lambda x: x * SCALES["a"][0], nn.Module())
    for _ in range(CALLS):
        assert replayed(torch.ones(())) == 1.0
    for name in [name for name in SCALES if name.isdigit()]:
        del SCALES[name]


@pytest.mark.parametrize("change", ["number", "list", "global"])
def test_kernel_that_changes_a_value_runs_as_written(change: str) -> None:
    module = Reader()

    def kernel(x: Tensor) -> Tensor:
        if change == "number":
            module.plain.scale += 1
        elif change == "list":
            module.plain.deep.scale = [*np.atleast_1d(module.plain.deep.scale), 1.0]
        else:
            SCALES["a"].append(1.0)
        return x * 2

    replayed = Taped(kernel, nn.Module())
    for _ in range(CALLS):
        replayed(torch.ones(()))
    assert replayed.failed is not None and replayed.failed.startswith("it changes")


def test_kernel_that_logs_runs_as_written_and_is_told_to_return_a_metric(caplog: pytest.LogCaptureFixture) -> None:
    rlrun.core.logged.take_logged()
    replayed = Taped(lambda x: rlrun.log("size", len(x)) or x * 2)
    for _ in range(CALLS):
        replayed(torch.ones(3))
    assert rlrun.core.logged.take_logged() == [("size", 3.0)] * CALLS
    (line,) = [record.getMessage() for record in caplog.records]
    assert "rlrun.log" in line and "return the number as a metric" in line


def test_compiled_kernel_is_compiled_again_for_another_value(caplog: pytest.LogCaptureFixture) -> None:
    module = Reader()

    class Uncompiled(InductorKernel):
        script = Script

    compiled = Uncompiled(lambda x: x * module.cfg.inner.scale, module)
    for scale in (1.0, 2.0, 1.0):
        module.cfg.inner.scale = scale
        for _ in range(3):
            assert compiled(torch.ones(3)).tolist() == [scale] * 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert "is compiled again: Reader.cfg.inner.scale has changed" in line
    assert compiled.failed is None and compiled.replays == 9


def test_reads_do_not_hold_arguments_or_results() -> None:
    module = Reader()

    def kernel(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        out = SimpleNamespace(value=batch["x"] * module.scale)
        return {"y": out.value}

    batch = {"x": torch.ones(3)}
    with Running() as running:
        kernel(batch)
    reads = Reads(kernel, module, running)
    assert "Reader.scale" in [label for _, label in reads.checks.values()]
    batch["x"] = torch.zeros(3)
    assert reads.unchanged() and reads.changed() is None
    assert not any(isinstance(value, Tensor) for value in reads.namespace.values())


def test_reads_do_not_depend_on_what_the_kernel_does_not_mention() -> None:
    module = Reader()
    with Running() as running:
        kernel = lambda x: x * module.cfg.inner.scale  # noqa: E731
        kernel(torch.ones(3))
    reads = Reads(kernel, module, running)
    module.tensor = torch.zeros(())
    module.scales.append(1.0)
    assert reads.unchanged()
    module.cfg.inner.scale = 7.0
    assert not reads.unchanged() and reads.changed() == "Reader.cfg.inner.scale"
    del module.cfg.inner
    assert not reads.unchanged() and reads.changed() == "Reader.cfg.inner"


def test_reads_hold_the_generator_of_a_stream_but_not_its_rows() -> None:
    module = nn.Module()
    module.noise = stream = Stream(0, "noise")

    def kernel(x: Tensor) -> Tensor:
        return x + stream.normal(1)

    with Running() as running:
        kernel(torch.ones(1))
    reads = Reads(kernel, module, running)
    stream.split(0, "row")
    assert reads.unchanged()
    stream.generator = torch.Generator()
    assert reads.changed() is not None


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (0.0, -0.0), ("1", 1), (None, False), ((1,), (1.0,))], ids=str)
def test_plain_values_are_compared_with_their_type(pair: tuple[Any, Any]) -> None:
    assert not same(*pair) and same(pair[0], pair[0]) and same(pair[1], pair[1])


def test_plain_values_nan_equals_nan() -> None:
    assert same(math.nan, float("nan")) and same((1, math.nan), (1, float("nan")))
    assert same(np.float32(0.1), np.float32(0.1)) and not same(np.float32(0.1), np.float64(np.float32(0.1)))


def test_plain_values_are_numbers_texts_and_tuples_of_them() -> None:
    assert all(map(is_plain, (1, 0.5, "a", None, True, (1, ("a", None)))))
    assert not any(map(is_plain, ([1], {"a": 1}, (1, [2]), torch.ones(1))))


def test_running_restores_the_profiler() -> None:
    import sys

    events: list[str] = []
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        outer = sys.getprofile()
        with Running():
            pass
        assert sys.getprofile() is outer
    finally:
        sys.setprofile(None)


def test_running_restores_the_profiler_of_the_standard_library() -> None:
    with Profile() as profile:
        with Running():
            pass
        math.gcd(4, 6)
    assert any("math.gcd" in str(entry.code) for entry in profile.getstats())
