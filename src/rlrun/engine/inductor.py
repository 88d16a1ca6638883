"""Recorded kernels as machine code: the operations of a tape, given to torch's compiler as one graph.

The graph has no autograd, modules or Python state, which would make compiled code slow. Compiled pointwise operations
differ from torch's own in the last bits, and are the same in every run. Therefore a kernel is compiled before its first
result is used, and a resumed run continues with the bits of one that never stopped.
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
from rlrun.engine.tape import MAX_VARIANTS, Taped
from rlrun.functional.fused import plain_adam


def machine_code(function: Callable[..., Any], inputs: list[Tensor]) -> Callable[..., Any]:
    """Compile a function of tensors that returns a sequence of tensors. A stop signal may interrupt it."""
    try:
        compiling.begin()
        return compiled_graph(symbolic_trace(function), inputs)
    finally:
        compiling.end()


def compiled_graph(graph: GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    """Compile by inductor alone, without torch's tracer and guards, whose Python would run before every call: a tape
    has no branches, and always gets the shapes and types that it was recorded with."""
    from torch._inductor.compile_fx import compile_fx  # takes a second

    compile_graph: Callable[..., Any] = compile_fx  # its annotation includes forms that this call does not return
    mode = FakeTensorMode(shape_env=ShapeEnv())
    shapes = [mode.from_tensor(tensor, static_shapes=True) for tensor in inputs]  # the default is variable shapes
    with torch.no_grad(), tracing(TracingContext(mode)):  # the compiler's cache needs the context
        # a wrapper in Python would call each of its loops by itself
        return compile_graph(graph, shapes, config_patches={"cpp_wrapper": True})


class InductorScript(Script):
    """A script for the compiler: pure operations on whole memories, of which its constants are views."""

    closed = (torch.ops.aten.mkldnn_rnn_layer.default,)  # LSTMs on a CPU run as written
    shaped = ()  # the compiler fuses them

    def compile(self) -> Callable[..., Any]:
        """The compiled function. It takes the input tensors, and returns what the kernel returned."""
        body = [self._line(call, None) for call in self.calls]
        wholes: dict[str, Tensor] = {}  # the memories of the constants, by name
        places: dict[int, str] = {}  # their names, by memory
        views = []
        for name, value in self.constants.items():
            place = places.setdefault(memory(value), f"m{len(places)}")
            wholes.setdefault(place, whole(value))
            views.append(f"{name} = {place}.as_strided({(*value.shape,)}, {value.stride()}, {value.storage_offset()})")
        parameters = [*self.parameters, *wholes]
        returned = list(dict.fromkeys(map(self._text, leaves(self.out))))
        results = ", ".join([*returned, ""])
        lines = "\n    ".join([*views, *body, f"return ({results})"])
        source = f"def replay({', '.join(parameters)}):\n    {lines}\n"
        source += f"def shaped({results}):\n    return {self._text(self.out)}\n"
        exec(source, self.namespace)  # as in Script: our own text
        constants = list(wholes.values())
        fast = machine_code(self.namespace["replay"], [*self.inputs, *constants])
        shaped = self.namespace["shaped"]
        return lambda *inputs: shaped(*fast(*inputs, *constants))

    def _function(self, call: Call, over: Tensor | None) -> Callable[..., Any]:
        return DECOMPOSITIONS.get(call.op, call.op)

    def _argument(self, call: Call, value: Any) -> Any:
        return value


class InductorKernel(Taped):
    """A module's kernel, compiled when it is first called, once for every kind of arguments.

    Its results differ from the kernel's in the last bits, so the two are not compared.
    """

    script = InductorScript

    def _call_without_tape(self, key: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        if len(self.tapes) == MAX_VARIANTS:
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
    """A context after which the tensors of a module have the values from before."""
    tensors = [*module.parameters(), *module.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)


def _baddbmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`baddbmm` as a product and a sum, which is fused with what reads it; the compiler's own first copies the bias."""
    return beta * bias + alpha * torch.bmm(left, right)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.baddbmm.default: _baddbmm,
    torch.ops.aten._fused_adam_.tensor_lr: plain_adam(decoupled=False),
    torch.ops.aten._fused_adamw_.tensor_lr: plain_adam(decoupled=True),
}
