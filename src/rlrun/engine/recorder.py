"""Notes every operation that reaches the device while a kernel runs: forward, backward and optimiser alike."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from rlrun.engine.arguments import leaves


class Call:
    """One operation: `op(*args, **kwargs)` gave `out`."""

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any):
        self.op, self.args, self.kwargs, self.out = op, args, kwargs, out
        self.given, self.results = leaves((args, kwargs)), leaves(out)
        self.changes: bool = op._schema.is_mutable
        self.repeats = not self.changes and torch.Tag.nondeterministic_seeded not in op.tags
        named = zip((argument.name for argument in op._schema.arguments), args, strict=False)
        values = dict(named) | kwargs
        self.changed = leaves([values.get(argument.name) for argument in op._schema.arguments if argument.is_write])


class Recorder(TorchDispatchMode):
    """Holds the calls, and with them every tensor that they made, while it is active and afterwards."""

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


def recording() -> bool:
    """Whether a kernel around this one is being recorded."""
    return _get_current_dispatch_mode() is not None


def memory(tensor: Tensor) -> int:
    """Equal for tensors that share their memory."""
    return tensor.untyped_storage()._cdata


def written(calls: list[Call], inputs: list[Tensor]) -> dict[int, Tensor]:
    """The whole memories that calls changed and did not make, by `memory`; those of the inputs are left out."""
    made = set(map(memory, inputs))
    found: dict[int, Tensor] = {}
    for call in calls:
        for tensor in call.changed:
            if memory(tensor) not in made:
                found.setdefault(memory(tensor), whole(tensor))
        given = set(map(memory, call.given))
        if call.op is torch.ops.aten.lift_fresh.default:  # a number that was made a tensor just now
            made |= given
        made.update(memory(result) for result in call.results if memory(result) not in given)
    return found


def whole(tensor: Tensor) -> Tensor:
    """All the memory in which a tensor lies, flat."""
    return tensor.detach().new_empty(0).set_(tensor.untyped_storage())
