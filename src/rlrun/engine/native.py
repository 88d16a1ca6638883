"""Tapes as machine code: what a kernel does to memory, handed to torch's compiler in one straight piece.

The compiler never meets autograd, modules or Python state, which cost it dearly. What it makes of pointwise operations
differs from torch's own in the last bits, and is the same in every run: so a kernel is compiled before its first
result is used, and a resumed run goes on with the bits of one that never stopped.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule, symbolic_trace
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from rlrun.core.breakable import compiling
from rlrun.engine.arguments import leaves
from rlrun.engine.recorder import Call, memory, whole
from rlrun.engine.script import Script
from rlrun.engine.tape import MOST, Taped
from rlrun.functional.fused import plain_adam


def machine_code(function: Callable[..., Any], inputs: list[Tensor]) -> Callable[..., Any]:
    """Tensors in, a sequence of tensors out. A stop signal need not wait for it."""
    try:
        compiling.begin()
        return inductor(symbolic_trace(function), inputs)
    finally:
        compiling.end()


def inductor(graph: GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    """torch's compiler without its tracer and its guards, whose Python would run before every call: a tape is straight,
    and only ever given the shapes and types it was recorded for. The context is what the compiler's cache asks for;
    with a wrapper in Python each of its loops would cost a call."""
    from torch._inductor.compile_fx import compile_fx  # takes a second

    mode = FakeTensorMode(shape_env=ShapeEnv())
    shapes = [mode.from_tensor(tensor, static_shapes=True) for tensor in inputs]  # else they are taken for variable
    with torch.no_grad(), tracing(TracingContext(mode)):
        return compile_fx(graph, shapes, config_patches={"cpp_wrapper": True})


class Native(Script):
    """A script for the compiler: pure operations on whole memories, of which its constants are views."""

    closed = (torch.ops.aten.mkldnn_rnn_layer.default,)  # LSTMs on a CPU run as written
    shaped = ()  # the compiler fuses them

    def compile(self) -> Callable[..., Any]:
        lines = [self._line(call, None) for call in self.calls]
        memories: dict[int, tuple[str, Tensor]] = {}
        views = []
        for name, value in self.space.items():
            if name[0] == "c":
                place, _ = memories.setdefault(memory(value), (f"m{len(memories)}", whole(value)))
                views.append(
                    f"{name} = {place}.as_strided({(*value.shape,)}, {value.stride()}, {value.storage_offset()})"
                )
        parameters = ", ".join([*self.parameters, *(place for place, _ in memories.values())])
        results = "".join(f"{name}, " for name in dict.fromkeys(self.names[id(tensor)] for tensor in leaves(self.out)))
        body = "\n    ".join([*views, *lines, f"return ({results})"])
        source = f"def replay({parameters}):\n    {body}\ndef shaped({results}):\n    return {self._text(self.out)}\n"
        exec(source, self.space)  # as in Script: our own text
        held = [tensor for _, tensor in memories.values()]
        fast, shaped = machine_code(self.space["replay"], [*self.inputs, *held]), self.space["shaped"]
        return lambda *inputs: shaped(*fast(*inputs, *held))

    def _function(self, call: Call, over: Tensor | None) -> Callable[..., Any]:
        return MEANT.get(call.op, call.op)

    def _argument(self, call: Call, value: Any) -> Any:
        return value


class Compiled(Taped):
    """A module's kernel, compiled when it is first called, once for every kind of arguments.

    Its numbers differ from the kernel's in the last bits, so the two are not compared.
    """

    script = Native

    def _meet(self, key: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        if len(self.tapes) == MOST:
            return self.method(*args, **kwargs)
        with unchanged(self.module):
            self.method(*args, **kwargs)  # as written: it may create state
            try:
                self._record(key, inputs, args, kwargs)
            except TorchDynamoException as error:
                self.refused[key] = f"the compiler failed ({str(error).splitlines()[0]})"
                self.warn(self.refused[key])
        if key in self.trials:
            self.tapes[key] = self.trials.pop(key).tape
        return self(*args, **kwargs)


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Afterwards its tensors hold what they held."""
    tensors = [*module.parameters(), *module.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)


def _baddbmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """A bias that is added while the result is read anyway, or else it is first written wherever the result will be."""
    return beta * bias + alpha * torch.bmm(left, right)


MEANT: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.baddbmm.default: _baddbmm,
    torch.ops.aten._fused_adam_.tensor_lr: plain_adam(decoupled=False),
    torch.ops.aten._fused_adamw_.tensor_lr: plain_adam(decoupled=True),
}
