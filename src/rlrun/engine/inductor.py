"""Compiles recorded kernels: torch's compiler gets the operations of a tape as one graph.

The graph has no autograd, modules or Python state, which would make compiled code slow. The results of compiled
pointwise operations differ from torch's own in the last bits, but are the same in every run. A kernel is compiled
before its first result is used, so a resumed run gives the same bits as a run that was never interrupted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule, symbolic_trace
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from rlrun.core.interruptible import compiling
from rlrun.engine.arguments import leaves
from rlrun.engine.recorder import Call, memory, whole
from rlrun.engine.script import Script
from rlrun.engine.tape import KEEP_IN_A_BUFFER, MAX_VARIANTS, Taped
from rlrun.functional.fused import plain_adam


def machine_code(function: Callable[..., object], inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """Compiles a function that maps tensors to a sequence of tensors. A stop signal may interrupt the compiler."""
    with compiling.work():
        return compiled_graph(symbolic_trace(function), inputs)


def compiled_graph(graph: GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    """Compiles a graph with inductor only, without torch's tracer and guards, which would run before every call.

    A tape needs no guards: it has no branches, and always gets the shapes and types that it was recorded with.
    """
    from torch._inductor.compile_fx import compile_fx  # takes a second

    compile_graph: Callable[..., Any] = compile_fx  # its annotated return types include some that never occur here
    mode = FakeTensorMode(shape_env=ShapeEnv())
    shapes = [mode.from_tensor(tensor, static_shapes=True) for tensor in inputs]  # the default is variable shapes
    with torch.no_grad(), tracing(TracingContext(mode)):  # the compiler's cache needs the context
        # with a C++ wrapper one call runs all compiled loops; the Python wrapper calls them one by one
        return compile_graph(graph, shapes, config_patches={"cpp_wrapper": True})


class InductorScript(Script):
    """A script for the compiler. Each constant is passed as its whole storage, and the script takes a view of it."""

    closed = (torch.ops.aten.mkldnn_rnn_layer.default,)  # so LSTMs on a CPU are not compiled
    shaped = ()  # none: the compiler fuses such operations with others

    def compile(self) -> Callable[..., Any]:
        """Returns the compiled function. It takes the input tensors and returns what the kernel returns."""
        body = [self._line(call, None) for call in self.calls]
        storages: dict[str, Tensor] = {}  # name -> storage of constants, as a flat tensor
        names: dict[int, str] = {}  # identifier of a storage, from `memory` -> its name
        views = []
        for constant, value in self.constants.items():
            name = names.setdefault(memory(value), f"m{len(names)}")
            storages.setdefault(name, whole(value))
            view = f"{name}.as_strided({(*value.shape,)}, {value.stride()}, {value.storage_offset()})"
            views.append(f"{constant} = {view}")
        parameters = [*self.parameters, *storages]
        returned = list(dict.fromkeys(map(self._text, leaves(self.out))))
        results = ", ".join([*returned, ""])
        lines = "\n    ".join([*views, *body, f"return ({results})"])
        source = f"def replay({', '.join(parameters)}):\n    {lines}\n"
        source += f"def arranged({results}):\n    return {self._text(self.out)}\n"  # tensors as the kernel returns them
        exec(source, self.namespace)  # safe, because the source is written by this class
        constants = list(storages.values())
        fast = machine_code(self.namespace["replay"], [*self.inputs, *constants])
        arranged = self.namespace["arranged"]
        return lambda *inputs: arranged(*fast(*inputs, *constants))

    def _function(self, call: Call, over: Tensor | None) -> Callable[..., object]:
        return DECOMPOSITIONS.get(call.op, call.op)

    def _argument(self, call: Call, value: object) -> object:
        return value


class InductorKernel(Taped):
    """A kernel that is compiled at its first call with each kind of arguments (their shapes and types).

    Its results differ from the original kernel's in the last bits, so they are not compared as in `Taped`. For the same
    reason, a kernel whose Python values change often is compiled again after each change, as a resumed run does too,
    while `Taped` would run it as written from then on.
    """

    script = InductorScript

    def _call_without_tape(self, key: str, inputs: list[Tensor], args: Any, kwargs: Any) -> object:
        if key not in self.tapes and len(self.tapes) == MAX_VARIANTS:
            return self.method(*args, **kwargs)
        if key in self.reads:
            self.log(f"is compiled again: {self.reads[key].changed()} has changed; {KEEP_IN_A_BUFFER}")
        with unchanged(self.module):  # these calls only prepare and check the compiled kernel, which is called last
            self.method(*args, **kwargs)  # a first call may create state, such as the moments of an optimiser
            try:
                self._record(key, inputs, args, kwargs)
            except TorchDynamoException as error:
                self.refused[key] = f"the compiler failed ({str(error).splitlines()[0]})"
                self.warn(self.refused[key])
            if key in self.trials:
                self.method(*args, **kwargs)
                if name := self.reads[key].changed():
                    self._fail(f"it changes {name}")
        if key in self.trials:
            self._accept(key)
        return self(*args, **kwargs)


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """A context that restores the parameters and buffers of a module at its end."""
    tensors = [*module.parameters(), *module.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)


def _baddbmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Computes `baddbmm` as a product and a sum, so that the compiler can fuse the sum with later operations.

    The compiler's own version copies the bias first.
    """
    return beta * bias + alpha * torch.bmm(left, right)


DECOMPOSITIONS: dict[object, Callable[..., object]] = {
    torch.ops.aten.baddbmm.default: _baddbmm,
    torch.ops.aten._fused_adam_.tensor_lr: plain_adam(decoupled=False),
    torch.ops.aten._fused_adamw_.tensor_lr: plain_adam(decoupled=True),
}
