"""Writes recorded operations as one Python function that makes the same calls with less overhead.

These operations are left out: those that return their argument unchanged, views of memory that never moves, operations
whose results are not used or depend only on shapes, and repetitions of an earlier operation. A pointwise result
overwrites an argument that is not needed afterwards. Results of matrix products never do, because the address of their
memory can change their last bits.
"""

from collections.abc import Callable, Container, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlrun.engine.arguments import leaves
from rlrun.engine.operations import IDENTITIES, RESHAPES, SHAPED, call_of, in_place, scalar_constant
from rlrun.engine.recorder import Call, changed_memory, memory

# torch's public function makes an object in each call, which takes a tenth of the time of a short tape
enable_grad: Callable[[bool], Any] = getattr(torch._C, "_set_grad_enabled", torch.set_grad_enabled)

REPLAY = """
def replay({parameters}):
    before = enabled()
    enable(False)
    try:
        {body}
    finally:
        enable(before)
"""


SUM, VIEW = torch.ops.aten.sum.dim_IntList, torch.ops.aten.view.default


def renames(call: Call) -> bool:
    """Returns whether a call returns its argument unchanged, with the same shape."""
    return call.op in IDENTITIES and call.results[0].shape == call.given[0].shape


def fills(tensor: Tensor) -> bool:
    """Returns whether a tensor is dense and takes up its whole storage."""
    dense = tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)
    return dense and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize


def fits_over(result: Tensor, argument: Tensor) -> bool:
    """Returns whether a result can be written over an argument: equal shape, strides and dtype, whole storages."""
    if (argument.shape, argument.stride(), argument.dtype) != (result.shape, result.stride(), result.dtype):
        return False
    return fills(argument) and fills(result)


def shape_without(shape: torch.Size, dims: list[int]) -> torch.Size:
    """Returns a shape without the dimensions `dims`."""
    kept = list(shape)
    for dim in sorted(dims, reverse=True):
        del kept[dim]
    return torch.Size(kept)


class Script:
    """Writes the source of a function, and holds the values of the names in it.

    The names are: x0, x1, ... for inputs; v0, v1, ... for variables, which are results of calls; c... for constants,
    which are tensors that no call made or that are equal in every replay; f... for functions; k... for other values.
    """

    closed: ClassVar[Container[Any]] = ()  # operations that are not supported
    shaped: ClassVar[Container[Any]] = SHAPED  # operations whose results are constants

    def __init__(self, calls: list[Call], inputs: list[Tensor], out: Any):
        # tensors are identified by their id, which is unique because all stay alive until the source is written
        self.recorded = calls
        self.inputs = inputs
        self.out = out
        self.parameters = [f"x{index}" for index in range(len(inputs))]
        self.names = dict(zip(map(id, inputs), self.parameters, strict=True))  # id of a tensor -> name
        self.variables: set[str] = set()
        self.constants: dict[str, Tensor] = {}
        self.fixed: set[str] = set()  # names of constants that depend only on shapes
        self.namespace: dict[str, Any] = {"enabled": torch.is_grad_enabled, "enable": enable_grad}
        self.changed = changed_memory(calls)
        self.returned = set(map(memory, leaves(out)))
        self.first_calls: dict[Any, Call] = {}  # (operation, arguments) -> the first such call
        self.makers: dict[int, Call] = {}  # id of a result -> the call that returned it
        for call in calls:
            self.makers.update(dict.fromkeys(map(id, call.results), call))
        self.calls = self._used(self._computing())

    def compile(self) -> Callable[..., Any]:
        """Returns the function. It takes the input tensors and returns what the kernel returns."""
        last_use = self._last_uses()
        overwritten = self._overwritten(last_use)
        lines = []
        for position, call in enumerate(self.calls):
            lines.append(self._line(call, overwritten.get(position)))
            names = self._names_of((*call.given, *call.results))
            for name in sorted(names & self.variables):
                if last_use.get(name, position) == position:
                    lines.append(f"{name} = None")  # frees the memory
        body = "\n        ".join([*lines, f"return {self._text(self.out)}"])
        source = REPLAY.format(parameters=", ".join(self.parameters), body=body)
        exec(source, self.namespace)  # safe: this class writes the source, of its own names, numbers and operations
        return self.namespace["replay"]

    def _add_constant(self, tensor: Tensor, value: Tensor) -> str:
        """Returns a new name for a recorded tensor that is constant; every replay uses `value` in its place."""
        name = f"c{len(self.namespace)}"
        self.names[id(tensor)] = name
        self.constants[name] = self.namespace[name] = value
        return name

    def _add_variable(self, tensor: Tensor) -> None:
        name = f"v{len(self.variables)}"
        self.names[id(tensor)] = name
        self.variables.add(name)

    def _names_of(self, tensors: Iterable[Tensor]) -> set[str]:
        return {self.names[id(tensor)] for tensor in tensors}

    def _computing(self) -> list[Call]:
        """Names all tensors of the recording. Returns the calls that a replay must make.

        Left out are calls that return their argument unchanged, view a constant, have a constant result, or repeat an
        earlier call.
        """
        computing: list[Call] = []
        for call in self.recorded:
            for tensor in call.given:
                if id(tensor) not in self.names:
                    self._add_constant(tensor, tensor.detach())
            new = [result for result in call.results if id(result) not in self.names]
            if call.op.is_view and not new:  # as for the 0 in x[-1] = 0: the result is its argument
                continue
            call = self._with_one_reshape(call)
            names = self._names_of(call.given)
            if renames(call) and new:
                self.names[id(new[0])] = self.names[id(call.given[0])]
            elif call.op.is_view and names <= self.constants.keys():
                self._add_views(call, new)
            elif self._is_fixed(call):
                for result in new:
                    self.fixed.add(self._add_constant(result, result.detach()))
            elif earlier := self._earlier(call):
                for result, same in zip(call.results, earlier.results, strict=True):
                    self.names[id(result)] = self.names[id(same)]
            else:
                for result in new:
                    self._add_variable(result)
                computing.append(call)
        return computing

    def _add_views(self, call: Call, new: list[Tensor]) -> None:
        """Adds constants for the results of a call that views a constant."""
        views = leaves(call.op(*self._values(call.args), **call.kwargs))
        is_fixed = self._has_fixed_arguments(call)
        for result, view in zip(new, views, strict=True):
            name = self._add_constant(result, view)
            if is_fixed:
                self.fixed.add(name)

    def _with_one_reshape(self, call: Call) -> Call:
        """Returns a call that fuses consecutive reshapes, or one without keepdim for a sum that is then reshaped.

        Other calls are returned unchanged.
        """
        if call.op not in RESHAPES:
            return call
        result, root = call.results[0], call.given[0]
        while (maker := self.makers.get(id(root))) and maker.op in RESHAPES:
            root = maker.given[0]
        if maker and maker.op is SUM and maker.args[2:] == (True,):
            summed = maker.args[0]
            dims = [dim % summed.dim() for dim in maker.args[1]]
            if result.shape == shape_without(summed.shape, dims):
                return Call(SUM, (summed, dims), maker.kwargs, result)
        if root is call.given[0]:
            return call
        return Call(VIEW, (root, list(result.shape)), {}, result)

    def _is_fixed(self, call: Call) -> bool:
        """Returns whether the results of a call are the same in every replay, and never written to or returned."""
        kept = (self.changed | self.returned).isdisjoint(map(memory, call.results))
        return kept and call.repeats and (call.op in self.shaped or self._has_fixed_arguments(call))

    def _has_fixed_arguments(self, call: Call) -> bool:
        return bool(call.given) and self._names_of(call.given) <= self.fixed

    def _earlier(self, call: Call) -> Call | None:
        """Returns an earlier call of the same operation with the same arguments, or None.

        The result is also None if an argument or a result of the call is ever written to.
        """
        if not call.repeats or not self.changed.isdisjoint(map(memory, (*call.given, *call.results))):
            return None
        arguments = self._spelling(call.args), self._spelling(tuple(call.kwargs.items()))
        key = call.op, len(call.results), *arguments  # without gradients, some operations return fewer tensors
        first = self.first_calls.setdefault(key, call)
        return None if first is call else first

    def _spelling(self, tree: Any) -> Any:
        """Returns a hashable form of arguments: tensors by their names, other values by their repr."""
        if isinstance(tree, Tensor):
            return self.names[id(tree)]
        if isinstance(tree, tuple | list):
            return tuple(map(self._spelling, tree))
        return repr(tree)

    def _values(self, tree: Any) -> Any:
        """Returns arguments with recorded tensors replaced by the constants that stand for them."""
        if isinstance(tree, Tensor):
            return self.constants[self.names[id(tree)]]
        if isinstance(tree, tuple | list):
            return type(tree)(map(self._values, tree))
        return tree

    def _used(self, calls: list[Call]) -> list[Call]:
        """Returns the calls whose results are used or that write to memory."""
        used = self._names_of(leaves(self.out))
        kept = []
        for call in reversed(calls):
            if call.changes or not used.isdisjoint(self._names_of(call.results)):
                used |= self._names_of(call.given)
                kept.append(call)
        return kept[::-1]

    def _last_uses(self) -> dict[str, int]:
        """Returns name -> position of the last call that reads it; the number of calls for names that are returned."""
        last_use = {}
        for position, call in enumerate(self.calls):
            last_use.update(dict.fromkeys(self._names_of(call.given), position))
        last_use.update(dict.fromkeys(self._names_of(leaves(self.out)), len(self.calls)))
        return last_use

    def _overwritten(self, last_use: dict[str, int]) -> dict[int, Tensor]:
        """Returns position of a call -> the argument that its result may overwrite, as no later call reads it."""
        needed_until: dict[int, int] = {}  # storage -> position of the last call that reads it
        free: set[int] = set()  # storages that recorded calls have allocated and that no result has overwritten yet
        for position, call in enumerate(self.calls):
            for result in call.results:
                name, storage = self.names[id(result)], memory(result)
                needed_until[storage] = max(needed_until.get(storage, 0), last_use.get(name, position))
                if name in self.variables and not call.op.is_view:
                    free.add(storage)
        chosen: dict[int, Tensor] = {}
        for position, call in enumerate(self.calls):
            if in_place(call.op) is None:
                continue
            for argument in leaves(call.args):
                storage = memory(argument)
                if fits_over(call.results[0], argument) and storage in free and needed_until[storage] <= position:
                    chosen[position] = argument
                    free.discard(storage)  # the result lies there from now on
                    break
        return chosen

    def _line(self, call: Call, over: Tensor | None) -> str:
        """Returns the statement of a call. over: the argument that its result overwrites, or None."""
        function = f"f{len(self.namespace)}"
        self.namespace[function] = self._function(call, over)
        arguments = [self._text(self._argument(call, value)) for value in call.args]
        for key, value in call.kwargs.items():
            arguments.append(f"{key}={self._text(value)}")
        if over is not None:
            arguments.append(f"out={self._text(over)}")
        text = f"{function}({', '.join(arguments)})"
        if call.changes:
            return text
        return f"{self._targets(call.out)} = {text}"

    def _function(self, call: Call, over: Tensor | None) -> Callable[..., Any] | None:
        return call_of(call) if over is None else in_place(call.op)

    def _argument(self, call: Call, value: Any) -> Any:
        return scalar_constant(call, value)

    def _targets(self, out: Any) -> str:
        """Returns the names that the results of a call are assigned to. `_` stands for None in place of a gradient."""
        if isinstance(out, Tensor):
            return self.names[id(out)]
        if isinstance(out, tuple | list):
            return f"({''.join(f'{self._targets(part)}, ' for part in out)})"
        return "_"

    def _text(self, value: Any) -> str:
        """Returns the source of a value.

        Floats get a name, because infinity has no literal, and so do all other values without a literal.
        """
        if isinstance(value, Tensor) and id(value) in self.names:
            return self.names[id(value)]
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self._text(part)}" for key, part in value.items()) + "}"
        if isinstance(value, tuple | list):
            parts = "".join(f"{self._text(part)}, " for part in value)
            return f"({parts})" if isinstance(value, tuple) else f"[{parts}]"
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        name = f"k{len(self.namespace)}"
        self.namespace[name] = value
        return name
