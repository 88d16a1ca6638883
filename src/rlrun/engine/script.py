"""Recorded operations, written out as one Python function that makes the same calls with less around them.

What falls away: tensors that are only renamed, views of memory that never moves, results nobody reads, what follows
from shapes alone, and what an earlier call computed of the same numbers. What is saved:
pointwise results go where an argument lay that is needed no more. Matrix products are left alone: where their memory
begins can change a bit.
"""

from collections.abc import Callable, Container
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlrun.engine.arguments import leaves
from rlrun.engine.operations import IDENTITIES, RESHAPES, SHAPED, call_of, in_place, scalar_constant
from rlrun.engine.recorder import Call, memory

# torch's public function makes an object each time, and takes a tenth of a short tape
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
    """Whether the result of a call is its argument."""
    return call.op in IDENTITIES and call.results[0].shape == call.given[0].shape


def fills(tensor: Tensor) -> bool:
    """Whether a tensor is all there is in its memory, in whatever order."""
    dense = tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)
    return dense and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize


class Script:
    """Inputs are named x0, x1, ...; results v0, v1, ...; constants, which are tensors no call made, c0, c1, ..."""

    closed: ClassVar[Container[Any]] = ()  # operations that it cannot call
    shaped: ClassVar[Container[Any]] = SHAPED  # those whose results are kept

    def __init__(self, calls: list[Call], inputs: list[Tensor], out: Any):
        # tensors are told apart by identity: all stay alive until it is written
        self.recorded, self.inputs, self.out = calls, inputs, out
        self.parameters = [f"x{index}" for index in range(len(inputs))]
        self.names = {id(tensor): name for tensor, name in zip(inputs, self.parameters, strict=True)}
        self.space: dict[str, Any] = {"enabled": torch.is_grad_enabled, "enable": enable_grad}
        self.changed = {memory(tensor) for call in calls for tensor in call.changed}
        self.known: dict[Any, Call] = {}  # by what they compute
        self.returned = set(map(memory, leaves(out)))
        self.fixed: set[str] = set()  # names of what follows from shapes
        self.makers = {id(result): call for call in calls for result in call.results}
        self.calls = self._needed(self._own())

    def compile(self) -> Callable[..., Any]:
        """The function: tensors in, what the kernel returned out."""
        last, over = self._last_uses(), self._overwritten()
        lines = []
        for position, call in enumerate(self.calls):
            lines.append(self._line(call, over.get(position)))
            gone = sorted({self.names[id(tensor)] for tensor in (*call.given, *call.results)})
            lines += [f"{name} = None" for name in gone if name[0] == "v" and last.get(name, position) == position]
        body = "\n        ".join([*lines, f"return {self._text(self.out)}"])
        source = REPLAY.format(parameters=", ".join(self.parameters), body=body)
        exec(source, self.space)  # our own text: names of operations, numbers, and the names given above
        return self.space["replay"]

    def _constant(self, tensor: Tensor, value: Tensor | None = None) -> None:
        name = f"c{len(self.space)}"
        self.names[id(tensor)] = name
        self.space[name] = tensor.detach() if value is None else value

    def _is_constant(self, tensor: Tensor) -> bool:
        return self.names[id(tensor)][0] == "c"

    def _own(self) -> list[Call]:
        """The calls that compute: without those that rename a tensor, or look at a constant from another side."""
        own: list[Call] = []
        index = 0
        for call in self.recorded:
            for tensor in call.given:
                if id(tensor) not in self.names:
                    self._constant(tensor)
            new = [result for result in call.results if id(result) not in self.names]
            if call.op.is_view and not new:  # a number made a tensor, as in x[-1] = 0, is its own result
                continue
            call = self._straight(call)
            if renames(call) and new:
                self.names[id(new[0])] = self.names[id(call.given[0])]
            elif call.op.is_view and all(map(self._is_constant, call.given)):
                for result, value in zip(new, leaves(call.op(*self._values(call.args), **call.kwargs)), strict=True):
                    self._constant(result, value)
                    if self._of_fixed(call):
                        self.fixed.add(self.names[id(result)])
            elif self._is_fixed(call):
                for result in new:
                    self._constant(result)
                    self.fixed.add(self.names[id(result)])
            elif earlier := self._earlier(call):
                for result, same in zip(call.results, earlier.results, strict=True):
                    self.names[id(result)] = self.names[id(same)]
            else:
                for result in new:
                    self.names[id(result)], index = f"v{index}", index + 1
                own.append(call)
        return own

    def _straight(self, call: Call) -> Call:
        """A shape that is given to what was given another shape is given at once, and sums keep no dimension for it."""
        if call.op not in RESHAPES:
            return call
        result, root = call.results[0], call.given[0]
        while (maker := self.makers.get(id(root))) and maker.op in RESHAPES:
            root = maker.given[0]
        if maker and maker.op is SUM and maker.args[2:] == (True,):
            summed, dims = maker.args[0], [dim % maker.args[0].dim() for dim in maker.args[1]]
            if result.shape == torch.Size(size for dim, size in enumerate(summed.shape) if dim not in dims):
                return Call(SUM, (summed, dims), maker.kwargs, result)
        return call if root is call.given[0] else Call(VIEW, (root, list(result.shape)), {}, result)

    def _is_fixed(self, call: Call) -> bool:
        """Whether its results are the same numbers in every replay, and nobody changes them."""
        kept = (self.changed | self.returned).isdisjoint(map(memory, call.results))
        return kept and call.repeats and (call.op in self.shaped or self._of_fixed(call))

    def _of_fixed(self, call: Call) -> bool:
        return bool(call.given) and all(self.names[id(tensor)] in self.fixed for tensor in call.given)

    def _earlier(self, call: Call) -> Call | None:
        """A call before this one that computed the same, where none of their memory ever changes."""

        def spelled(tree: Any) -> Any:
            if isinstance(tree, Tensor):
                return self.names[id(tree)]
            return tuple(map(spelled, tree)) if isinstance(tree, tuple | list) else repr(tree)

        if not call.repeats or not self.changed.isdisjoint(map(memory, (*call.given, *call.results))):
            return None
        key = call.op, spelled(call.args), *((name, spelled(value)) for name, value in call.kwargs.items())
        earlier = self.known.setdefault(key, call)
        return None if earlier is call else earlier

    def _values(self, tree: Any) -> Any:
        """Arguments with the constants that tensors stand for."""
        if isinstance(tree, Tensor):
            return self.space[self.names[id(tree)]]
        return type(tree)(map(self._values, tree)) if isinstance(tree, tuple | list) else tree

    def _needed(self, calls: list[Call]) -> list[Call]:
        """The calls whose results are used, or that change something."""
        used = {self.names[id(tensor)] for tensor in leaves(self.out)}
        kept = []
        for call in reversed(calls):
            names = {self.names[id(result)] for result in call.results}
            if call.changes or names & used:
                used.update(self.names[id(tensor)] for tensor in call.given)
                kept.append(call)
        return kept[::-1]

    def _last_uses(self) -> dict[str, int]:
        last = {self.names[id(t)]: position for position, call in enumerate(self.calls) for t in call.given}
        return last | {self.names[id(tensor)]: len(self.calls) for tensor in leaves(self.out)}

    def _overwritten(self) -> dict[int, Tensor]:
        """For each call that may write over an argument, which: one whose memory nothing looks at afterwards."""
        last, until, free = self._last_uses(), dict[int, int](), set[int]()
        for position, call in enumerate(self.calls):
            for result in call.results:
                until[memory(result)] = max(until.get(memory(result), 0), last.get(self.names[id(result)], position))
                if not call.op.is_view and self.names[id(result)][0] == "v":
                    free.add(memory(result))
        chosen: dict[int, Tensor] = {}
        for position, call in enumerate(self.calls):
            if in_place(call.op) is None:
                continue
            result = call.results[0]
            for tensor in leaves(call.args):
                alike = (tensor.shape, tensor.stride(), tensor.dtype) == (result.shape, result.stride(), result.dtype)
                if (
                    alike
                    and fills(tensor)
                    and fills(result)
                    and memory(tensor) in free
                    and until[memory(tensor)] <= position
                ):
                    chosen[position] = tensor
                    free.discard(memory(tensor))  # it goes on under the result's name
                    break
        return chosen

    def _line(self, call: Call, over: Tensor | None) -> str:
        function = f"f{len(self.space)}"
        self.space[function] = self._function(call, over)
        words = [self._text(self._argument(call, value)) for value in call.args]
        words += [f"{key}={self._text(value)}" for key, value in call.kwargs.items()]
        words += [] if over is None else [f"out={self._text(over)}"]
        text = f"{function}({', '.join(words)})"
        if call.changes:
            return text
        return f"{self._names(call.out)} = {text}"

    def _function(self, call: Call, over: Tensor | None) -> Callable[..., Any] | None:
        return call_of(call) if over is None else in_place(call.op)

    def _argument(self, call: Call, value: Any) -> Any:
        return scalar_constant(call, value)

    def _names(self, out: Any) -> str:
        """What results are assigned to; a gradient that was not asked for is none."""
        if isinstance(out, Tensor):
            return self.names[id(out)]
        return f"({''.join(f'{self._names(part)}, ' for part in out)})" if isinstance(out, tuple | list) else "_"

    def _text(self, value: Any) -> str:
        if isinstance(value, Tensor) and id(value) in self.names:
            return self.names[id(value)]
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self._text(part)}" for key, part in value.items()) + "}"
        if isinstance(value, tuple | list):
            parts = "".join(f"{self._text(part)}, " for part in value)
            return f"({parts})" if isinstance(value, tuple) else f"[{parts}]"
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        name = f"k{len(self.space)}"  # floats too: infinity has no literal; tensors made of numbers
        self.space[name] = value
        return name
