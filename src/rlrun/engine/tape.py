"""Records a kernel once, then replays its tensor operations without the overhead of modules and autograd.

A tape is to a CPU what a CUDA graph is to a GPU. While a kernel runs, every operation that reaches the device is
recorded, in the forward pass, the backward pass and the optimiser. The tape is one Python function that makes the same
calls in sequence, so its results equal the kernel's bit for bit. It relies on what kernels guarantee: fixed shapes, no
random numbers, no branch on a tensor, all state in tensors that are changed in place.

These guarantees are checked. For each kind of arguments (their shapes and types), a kernel's first ten calls run as
written, and the second is recorded. At the third and the tenth call the recording is replayed first, then the state is
restored and the kernel runs. Results and state must be equal bit for bit, and no Python value that the kernel reads and
no attribute of its module, such as a counter, may have changed. From the eleventh call on, the tape replaces the
kernel. A kernel that fails the check is never replayed and always gives the bits of `trainer.engine=eager`; one warning
is logged.

Between calls, such Python values may change: a tape is replayed only while all are as they were (`engine/reads.py`).
Otherwise the kernel is recorded anew. Several tapes are kept, for values that come back. A kernel whose values change
too often to be worth recording runs as written from then on.
"""

import copy
import logging
from collections.abc import Callable, Container
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.core.logged import log
from rlrun.core.random import Stream
from rlrun.engine.arguments import flatten, leaves, only_tensors
from rlrun.engine.reads import Reads, Running
from rlrun.engine.recorder import Call, Recorder, recording
from rlrun.engine.script import Script
from rlrun.engine.trial import RecordingTrial, attributes, changed_attribute

MAX_VARIANTS = 16  # kinds of arguments for which a method is recorded
MAX_TAPES = 8  # recordings of one kind of arguments, with different Python values
WORTHWHILE = 100  # replays that save more time than a recording takes
RECORDED, CHECKED = 2, (3, 10)  # the call that is recorded and the calls that are checked, for each kind of arguments
KEEP_IN_A_TENSOR = "a replay cannot change Python state: keep it in a tensor"
KEEP_IN_A_BUFFER = "keep it in a buffer (self.register_buffer) and change that in place, or declare it Scheduled"
# tags of operations that cannot be replayed, except those that are `repeatable`
REFUSED = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded)


class Taped:
    """A method of a module that is replayed from its eleventh call on. The first call may create state.

    The method always runs as written while the module's random streams are split into rows (`Stream.rows`).
    """

    script = Script

    def __init__(self, method: Callable[..., Any], module: nn.Module | None = None):
        self.method = method
        self.module = nn.Module() if module is None else module
        self.streams = [part for part in self.module.modules() if isinstance(part, Stream)]
        self._forget()

    def _forget(self) -> None:
        """Deletes all recordings. Keys of the dicts are kinds of arguments: shapes, types, values of non-tensors."""
        self.calls: dict[Any, int] = {}  # number of calls so far
        self.trials: dict[Any, RecordingTrial] = {}  # recordings that are being checked
        # recordings that passed the check, latest first, each with a function that returns whether it is still right
        self.tapes: dict[Any, list[tuple[Callable[[], bool], Callable[..., Any]]]] = {}
        self.reads: dict[Any, Reads] = {}  # what the latest recording depends on
        self.begun: dict[Any, int] = {}  # number of replays before the latest recording
        self.replays = 0
        self.wasted = 0  # recordings in a row that Python values ended before they were worthwhile
        self.refused: dict[Any, str] = {}  # reasons why calls with these arguments always run as written
        self.failed: str | None = None  # the reason why all calls run as written, if the check has failed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for stream in self.streams:
            if stream.rows:
                return self.method(*args, **kwargs)
        shapes: list[Any] = []
        inputs: list[Tensor] = []
        flatten((args, kwargs) if kwargs else args, shapes, inputs)
        ids = [*map(id, inputs)]
        if len(set(ids)) < len(ids):  # if one tensor is passed twice, that belongs to the kind of arguments
            shapes.append(tuple(map(ids.index, ids)))
        key = tuple(shapes)
        if recording():
            return self.method(*args, **kwargs)
        for unchanged, tape in self.tapes.get(key, ()):
            if unchanged():
                self.replays += 1
                return tape(*inputs)
        if self.failed is not None or key in self.refused:
            return self.method(*args, **kwargs)
        return self._call_without_tape(key, inputs, args, kwargs)

    def _call_without_tape(self, key: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        """Runs the method as written. Records it at its second call, and checks the recording at calls 3 and 10."""
        if key not in self.calls and len(self.calls) == MAX_VARIANTS:
            return self.method(*args, **kwargs)
        if key in self.reads and not self.reads[key].unchanged():
            self._start_again(key)
            if self.failed is not None:
                return self.method(*args, **kwargs)
        self.calls[key] = count = self.calls.get(key, 0) + 1
        if count == RECORDED:
            return self._record(key, inputs, args, kwargs)
        if count in CHECKED:
            return self._check(key, inputs, args, kwargs)
        return self.method(*args, **kwargs)

    def _start_again(self, key: Any) -> None:
        """Has this call recorded anew, because a Python value has changed. Gives up if that happens too often."""
        name = self.reads.pop(key).changed()
        self.trials.pop(key, None)
        self.calls[key] = RECORDED - 1
        self.wasted += 1
        if self.replays - self.begun[key] >= WORTHWHILE:
            self.wasted = 0
        if self.wasted == MAX_TAPES:
            self._fail(f"{name} keeps changing, and each recording holds for one value", KEEP_IN_A_BUFFER)

    def _accept(self, key: Any) -> None:
        """Replays a recording from now on."""
        trial = self.trials.pop(key)
        tapes = self.tapes.setdefault(key, [])
        tapes.insert(0, (trial.reads.unchanged, trial.tape))
        del tapes[MAX_TAPES:]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Taped":
        # tapes hold tensors of this module, so the copy must record its own
        copied = copy.copy(self)
        copied.method, copied.module, copied.streams = copy.deepcopy((self.method, self.module, self.streams), memo)
        copied._forget()
        return copied

    def _record(self, key: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        held = attributes(self.module)
        with Running() as running, Recorder() as recorder:
            out = self.method(*args, **kwargs)
        reason = fault(recorder.calls, inputs, out, self.script.closed)
        if name := changed_attribute(held, self.module):
            self._fail(f"it changes {name}")
        elif log.__code__ in running.globals:
            self._fail("it calls rlrun.log", "a replay does not: return the number as a metric")
        elif reason is None:
            tape = self._tape(recorder.calls, inputs, out, args, kwargs)
            self.reads[key] = Reads(self.method, self.module, running)
            self.begun[key] = self.replays
            self.trials[key] = RecordingTrial(tape, self.reads[key], recorder.calls, inputs)
        else:
            self.refused[key] = reason
        return out

    def _check(self, key: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        out, differs = self.trials[key].run(self.method, self.module, inputs, args, kwargs)
        if differs is not None:
            self._fail(differs)
        elif self.calls[key] == CHECKED[-1]:
            self._accept(key)
        return out

    def _fail(self, why: str, advice: str = KEEP_IN_A_TENSOR) -> None:
        self._forget()
        self.failed = why
        self.warn(f"{why}; {advice}, or use trainer.engine=eager")

    def warn(self, why: str) -> None:
        """Logs one line with the reason why the method runs as written."""
        self.log(f"runs as written: {why}")

    def log(self, what: str) -> None:
        """Logs one line about the method."""
        logging.getLogger(__name__).warning("%s.%s %s", type(self.module).__name__, self.method.__name__, what)

    def _tape(self, calls: list[Call], inputs: list[Tensor], out: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
        """Returns the function that replaces the method. It takes only the tensors among the method's arguments."""
        return self.script(calls, inputs, out).compile()


def fault(calls: list[Call], inputs: list[Tensor], out: Any, closed: Container[Any]) -> str | None:
    """Returns why these calls cannot be replayed, or None. closed: operations that the compiler does not support."""
    for call in calls:
        if call.op in closed:
            return f"it calls {call.op}, which the compiler does not support"
        if not set(call.op.tags).isdisjoint(REFUSED) and not repeatable(call):
            return f"it calls {call.op}, whose result depends on more than shapes"
    for tensor in (*inputs, *leaves(out)):
        if tensor.requires_grad:
            return "gradients flow into it or out of it"
    if not only_tensors(out):
        return "it returns something other than tensors"
    return None


def repeatable(call: Call) -> bool:
    """Returns whether an operation with one of the tags in `REFUSED` can be replayed nevertheless."""
    if call.op is torch.ops.aten.index.Tensor:  # the result has a fixed shape for indices, but not for a boolean mask
        return all(tensor.dtype != torch.bool for tensor in call.given[1:])
    return call.kwargs.get("generator") is not None  # a replay draws new numbers from the same generator


def works() -> None:
    """Records and replays a small kernel. Raises whatever exception torch raises if it does not support that."""
    calls = CHECKED[-1] + 1
    total = torch.zeros(2)
    taped = Taped(lambda x: total.add_(x * 2) + 1)
    for _ in range(calls):
        taped(torch.ones(2))
    if not taped.tapes or not torch.equal(total, torch.full((2,), 2.0 * calls)):
        raise RuntimeError("a recorded kernel gave different results")
