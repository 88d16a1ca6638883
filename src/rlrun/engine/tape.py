"""Kernels without the price of Python and autograd: recorded once, then replayed as the bare operations underneath.

What a CUDA graph is to a GPU, a tape is to a CPU. While a kernel runs, every operation that reaches the device is
noted, forward, backward and optimiser alike; the tape is these calls as one straight Python function. Results are those
of the kernel, bit for bit. It rests on what kernels promise: fixed shapes, no number drawn, no branch on a tensor, all
state in tensors that are changed in place. A kernel that is seen to break a promise is never replayed.
"""

import copy
from collections.abc import Callable, Container, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from rlrun.core.random import Stream
from rlrun.engine.script import Call, Script, leaves

MOST = 16  # kinds of arguments for which a method is recorded
REFUSED = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded)


class Recorder(TorchDispatchMode):
    """Notes every operation while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch's compiler never meets a recorder, and need not be imported to pass it by: it takes 80 MiB."""
        return False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        self.calls.append(Call(op, args, kwargs or {}, out))
        return out


class Taped:
    """A method that is replayed from its third call on. The first runs as written, for it may create state."""

    script = Script

    def __init__(self, method: Callable[..., Any], streams: Iterable[Stream] = ()):
        """`streams`: those it may draw from. While their rows are split, it runs as written."""
        self.method, self.streams = method, list(streams)
        self.tapes: dict[Any, Callable[..., Any]] = {}  # by kind of arguments: shapes, and values that are no tensors
        self.seen: set[Any] = set()
        self.refused: dict[Any, str] = {}  # why it runs as written

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for stream in self.streams:
            if stream.rows:
                return self.method(*args, **kwargs)
        shapes: list[Any] = []
        inputs: list[Tensor] = []
        flatten((args, kwargs) if kwargs else args, shapes, inputs)
        if len({id(tensor) for tensor in inputs}) < len(inputs):  # one tensor given twice is another kind
            places = {id(tensor): place for place, tensor in enumerate(inputs)}
            shapes.append(tuple(places[id(tensor)] for tensor in inputs))
        key = tuple(shapes)
        if key in self.refused or _get_current_dispatch_mode() is not None:  # the latter inside another's recording
            return self.method(*args, **kwargs)
        tape = self.tapes.get(key)
        return self._meet(key, inputs, args, kwargs) if tape is None else tape(*inputs)

    def _meet(self, key: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        """A kind of arguments without a tape yet."""
        if key in self.seen:
            return self._record(key, inputs, args, kwargs)
        if len(self.seen) < MOST:
            self.seen.add(key)
        return self.method(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Taped":
        # with the copy's own memory, so with tapes of its own
        made = copy.copy(self)
        made.method, made.streams = copy.deepcopy((self.method, self.streams), memo)
        made.tapes, made.seen, made.refused = {}, set(), {}
        return made

    def _record(self, key: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        with Recorder() as recorder:
            out = self.method(*args, **kwargs)
        reason = fault(recorder.calls, inputs, out, self.script.closed)
        if reason is None:
            self.tapes[key] = self._tape(recorder.calls, inputs, out, args, kwargs)
        else:
            self.refused[key] = reason
        return out

    def _tape(self, calls: list[Call], inputs: list[Tensor], out: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
        """What runs in the method's stead: the tensors among its arguments in, what it returns out."""
        return self.script(calls, inputs, out).compile()


def flatten(value: Any, shapes: list[Any], tensors: list[Tensor]) -> None:
    """Takes arguments apart: what a tape depends on goes to `shapes`, what it reads anew each time to `tensors`."""
    if isinstance(value, Tensor):
        shapes.append(value.shape)
        shapes.append(value.dtype)
        tensors.append(value)
    elif isinstance(value, dict):
        shapes.append(tuple(value))
        for part in value.values():
            flatten(part, shapes, tensors)
    elif isinstance(value, tuple | list):
        shapes.append(len(value))
        for part in value:
            flatten(part, shapes, tensors)
    else:
        shapes.append((type(value), value))


def fault(calls: list[Call], inputs: list[Tensor], out: Any, closed: Container[Any]) -> str | None:
    """Why these calls cannot be replayed; None where they can."""
    for call in calls:
        if call.op in closed:
            return f"it calls {call.op}, which the compiler does not know"
        if any(tag in call.op.tags for tag in REFUSED) and not repeatable(call):
            return f"it calls {call.op}, whose result depends on more than shapes"
    if any(tensor.requires_grad for tensor in (*inputs, *leaves(out))):
        return "gradients flow into it or out of it"
    if not _only_tensors(out):
        return "it returns something else than tensors"
    return None


def repeatable(call: Call) -> bool:
    """Whether an operation can be replayed though it is of a suspicious kind."""
    if call.op is torch.ops.aten.index.Tensor:  # by numbers the shape is fixed, by a mask it is not
        return all(tensor.dtype != torch.bool for tensor in call.given[1:])
    return call.kwargs.get("generator") is not None  # drawn from a stream, which goes on


def _only_tensors(tree: Any) -> bool:
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple | list) else ()
    return isinstance(tree, Tensor) or (isinstance(tree, dict | tuple | list) and all(map(_only_tensors, parts)))
