"""Records every operation that reaches the device while a kernel runs: forward, backward and optimiser alike."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from rlrun.engine.arguments import leaves


class Call:
    """One operation: `op(*args, **kwargs)` gave `out`."""

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any):
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.out = out
        self.given = leaves((args, kwargs))
        self.results = leaves(out)
        self.changes: bool = op._schema.is_mutable
        self.repeats = not self.changes and torch.Tag.nondeterministic_seeded not in op.tags
        self.changed: list[Tensor] = []  # arguments that it writes to
        for position, argument in enumerate(op._schema.arguments):
            if argument.is_write and position < len(args):
                self.changed += leaves(args[position])
            elif argument.is_write:
                self.changed += leaves(kwargs.get(argument.name))


class Recorder(TorchDispatchMode):
    """Holds the calls, and with them every tensor that they made, while it is active and afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch's compiler never runs inside a recorder, so it is not imported to find that out: it takes 80 MiB."""
        return False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        self.calls.append(Call(op, args, kwargs or {}, out))
        return out


def recording() -> bool:
    """Whether a kernel around this one is being recorded."""
    return _get_current_dispatch_mode() is not None


def memory(tensor: Tensor) -> int:
    """Equal for tensors that share their memory."""
    return tensor.untyped_storage()._cdata


def changed_memory(calls: list[Call]) -> set[int]:
    """The memory that calls write to, by `memory`."""
    changed: set[int] = set()
    for call in calls:
        changed.update(map(memory, call.changed))
    return changed


def written(calls: list[Call], inputs: list[Tensor]) -> dict[int, Tensor]:
    """All memory that calls wrote to and did not allocate, by `memory`, each whole; that of the inputs is left out."""
    made = set(map(memory, inputs))
    found: dict[int, Tensor] = {}
    for call in calls:
        for tensor in call.changed:
            if memory(tensor) not in made:
                found.setdefault(memory(tensor), whole(tensor))
        given = set(map(memory, call.given))
        if call.op is torch.ops.aten.lift_fresh.default:  # a number that was made a tensor just now
            made |= given
        made |= set(map(memory, call.results)) - given
    return found


def whole(tensor: Tensor) -> Tensor:
    """All the memory of which a tensor is a view, as a flat tensor."""
    return tensor.detach().new_empty(0).set_(tensor.untyped_storage())
