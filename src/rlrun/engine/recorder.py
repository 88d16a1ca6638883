"""Records every tensor operation of a kernel, including those of the backward pass and of the optimiser."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from rlrun.engine.arguments import leaves


class Call:
    """Holds one operation: its arguments and its result, `out = op(*args, **kwargs)`."""

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any):
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.out = out
        self.given = leaves((args, kwargs))
        self.results = leaves(out)
        self.changes: bool = op._schema.is_mutable  # whether it writes to one of its arguments
        # whether equal arguments always give an equal result, and nothing else happens
        self.repeats = not self.changes and torch.Tag.nondeterministic_seeded not in op.tags
        self.changed: list[Tensor] = []  # arguments that the operation writes to
        for position, argument in enumerate(op._schema.arguments):
            if argument.is_write and position < len(args):
                self.changed += leaves(args[position])
            elif argument.is_write:
                self.changed += leaves(kwargs.get(argument.name))


class Recorder(TorchDispatchMode):
    """Records all operations while it is active.

    Every tensor that an operation used or returned stays alive as long as the recorder does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False: if it returned True, defining this class would import torch's compiler, which takes 80 MiB.

        The compiler never runs inside a recorder.
        """
        return False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        out = op(*args, **(kwargs or {}))
        self.calls.append(Call(op, args, kwargs or {}, out))
        return out


def recording() -> bool:
    """Returns whether a recorder is active. If so, a kernel is being recorded that has called the current one."""
    return _get_current_dispatch_mode() is not None


def memory(tensor: Tensor) -> int:
    """Returns an identifier of the tensor's storage; it is equal for tensors that share memory."""
    return tensor.untyped_storage()._cdata


def changed_memory(calls: list[Call]) -> set[int]:
    """Returns the storages that the calls write to, as identifiers from `memory`."""
    changed: set[int] = set()
    for call in calls:
        changed.update(map(memory, call.changed))
    return changed


def generators_of(calls: list[Call]) -> list[torch.Generator]:
    """Returns the generators that the calls draw from, each once."""
    drawn = (call.kwargs.get("generator") for call in calls)
    return list(dict.fromkeys(generator for generator in drawn if generator is not None))


def written(calls: list[Call], inputs: list[Tensor]) -> dict[int, Tensor]:
    """Returns the storages that the calls wrote to but did not allocate, without those of the inputs.

    The keys are identifiers from `memory`; the values are flat tensors over the whole storage.
    """
    made = set(map(memory, inputs))
    found: dict[int, Tensor] = {}
    for call in calls:
        for tensor in call.changed:
            if memory(tensor) not in made:
                found.setdefault(memory(tensor), whole(tensor))
        given = set(map(memory, call.given))
        if call.op is torch.ops.aten.lift_fresh.default:  # its argument is a new tensor, made from a number
            made |= given
        made |= set(map(memory, call.results)) - given
    return found


def whole(tensor: Tensor) -> Tensor:
    """Returns the whole storage of a tensor as a flat tensor that shares its memory."""
    return tensor.detach().new_empty(0).set_(tensor.untyped_storage())
