"""Replaces an agent's kernels by faster functions. They are set on the instance, so parameter names do not change."""

import functools
from collections.abc import Callable

import torch
from torch import nn

from rlrun.engine import matmul_backend
from rlrun.engine.arguments import rows
from rlrun.engine.support import running

Kernel = Callable[..., object]
Wrapper = Callable[[Kernel, nn.Module], Kernel]


def kernels(agent: nn.Module, mark: str = "is_kernel") -> list[tuple[nn.Module, str]]:
    """Returns (module, method name) of all methods in the module tree that a decorator has marked.

    mark: "is_kernel" for methods with @kernel, "is_policy" for those with @policy.
    """
    found = []
    for module in agent.modules():
        for name in _marked(type(module), mark):
            found.append((module, name))
    return found


def _marked(kind: type, mark: str) -> list[str]:
    """Returns the names of the marked methods of a class, in alphabetical order."""
    methods: dict[str, object] = {}
    for base in kind.__mro__:
        if base not in (nn.Module, object):  # which have hundreds of attributes, and no kernels
            for name, value in vars(base).items():
                methods.setdefault(name, value)
    return sorted(name for name, value in methods.items() if getattr(value, mark, False))


def accelerate(agent: nn.Module, engine: str, precision: str, device: torch.device) -> None:
    """Wraps all kernels of an agent according to `trainer.engine` and `trainer.precision`.

    If the engine cannot run here, kernels run eager, and one warning is logged.
    """
    engine = running(engine, device)
    wrap = wrapper(engine, device)
    for module, name in kernels(agent):
        method = getattr(module, name)
        if precision == "bf16":
            method = autocast(method, device)
        method = wrap(method, module)
        if precision != "bf16" and device.type == "cpu":
            method = MatmulBackend(method, module)
        object.__setattr__(module, name, method)
    if engine in ("auto", "compile") and device.type == "cpu":  # policies are recorded, but never compiled
        wrap = wrapper("auto", device)
        for module, name in kernels(agent, "is_policy"):
            object.__setattr__(module, name, wrap(getattr(module, name), module))


def wrapper(engine: str, device: torch.device) -> Wrapper:
    """Returns a function (kernel, module) -> faster kernel for an engine.

    The modules that record and compile are imported only here, if the engine needs them.
    """
    if engine == "eager" or (engine == "auto" and device.type != "cpu"):
        return as_written
    if engine == "auto":
        from rlrun.engine.tape import Taped

        return Taped
    if engine == "cudagraph":
        from rlrun.engine.graphs import Graphed

        return Graphed
    from rlrun.engine.inductor import InductorKernel  # torch's compiler takes a second to import

    return InductorKernel


def as_written(method: Kernel, module: nn.Module) -> Kernel:
    """Returns the kernel unchanged."""
    return method


def autocast(method: Kernel, device: torch.device) -> Kernel:
    """Returns a kernel that runs under torch.autocast: its matrix products are computed in bf16."""

    @functools.wraps(method)
    def call(*args: object) -> object:
        with torch.autocast(device.type, torch.bfloat16):
            return method(*args)

    return call


class MatmulBackend:
    """Runs a kernel with the library that is fastest for its largest matrix product.

    The choice depends only on shapes, and is made once for each batch size.
    """

    def __init__(self, method: Kernel, module: nn.Module):
        self.method = method
        # a weight of an ensemble is [members, in, out]: each member has its own product of the last two dimensions
        weights = [p.shape for p in module.parameters() if p.dim() in (2, 3)]
        self.largest = max((shape[-1] * shape[-2] for shape in weights), default=0)
        self.large: dict[int | None, bool] = {}  # number of rows of the first argument -> result of `_is_large`

    def __call__(self, *args: object) -> object:
        first = next(rows(args), None)
        large = self.large.get(first)
        if large is None:
            large = self.large[first] = self._is_large(args)
        if not large:
            return self.method(*args)
        with matmul_backend.onednn():
            return self.method(*args)

    def _is_large(self, args: object) -> bool:
        """Returns whether the largest matrix product of a call is large enough for oneDNN to be faster."""
        operations = 2 * max(rows(args), default=0) * self.largest  # a multiplication and an addition each
        return operations >= matmul_backend.onednn_from()
