"""Replaces an agent's kernels by faster ones, on the instance. Parameter names and agent files never change."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rlrun.config.schema import TrainerConfig
from rlrun.engine import matmul_backend
from rlrun.engine.arguments import rows
from rlrun.engine.support import running

Kernel = Callable[..., Any]
Wrapper = Callable[[Kernel, nn.Module], Kernel]


def kernels(agent: nn.Module, mark: str = "is_kernel") -> list[tuple[nn.Module, str]]:
    """All methods in the module tree that carry the mark of `@kernel`, or another: (module, method name)."""
    found = []
    for module in agent.modules():
        for name in dir(type(module)):
            if getattr(getattr(type(module), name, None), mark, False):
                found.append((module, name))
    return found


def accelerate(agent: nn.Module, cfg: TrainerConfig, device: torch.device) -> None:
    """Wrap all kernels as `trainer.engine` and `trainer.precision` say.

    An engine that cannot run here leaves them as written, and one line says so.
    """
    engine = running(cfg.engine, device)
    wrap = wrapper(engine, device)
    for module, name in kernels(agent):
        method = getattr(module, name)
        if cfg.precision == "bf16":
            method = autocast(method, device)
        method = wrap(method, module)
        if cfg.precision != "bf16" and device.type == "cpu":
            method = MatmulBackend(method, module)
        object.__setattr__(module, name, method)
    if engine in ("auto", "compile") and device.type == "cpu":
        wrap = wrapper("auto", device)
        for module, name in kernels(agent, "is_policy"):
            object.__setattr__(module, name, wrap(getattr(module, name), module))


def wrapper(engine: str, device: torch.device) -> Wrapper:
    """The function that makes a faster kernel of a kernel and its module. Only this imports recorders and compilers."""
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
    """The kernel itself."""
    return method


def autocast(method: Kernel, device: torch.device) -> Kernel:
    """The kernel with its matrix products in bf16."""

    @functools.wraps(method)
    def call(*args: Any) -> Any:
        with torch.autocast(device.type, torch.bfloat16):
            return method(*args)

    return call


class MatmulBackend:
    """A kernel that runs with the library that is fastest for its largest matrix product.

    The choice depends on shapes alone, and is made once for each batch size.
    """

    def __init__(self, method: Kernel, module: nn.Module):
        self.method = method
        # the last two dimensions of a weight make one product; a leading one stacks members
        weights = [p.shape for p in module.parameters() if p.dim() in (2, 3)]
        self.largest = max((shape[-1] * shape[-2] for shape in weights), default=0)
        self.large: dict[int | None, bool] = {}  # by the rows of the first argument

    def __call__(self, *args: Any) -> Any:
        first = next(rows(args), None)
        large = self.large.get(first)
        if large is None:
            large = self.large[first] = self._is_large(args)
        if not large:
            return self.method(*args)
        with matmul_backend.onednn():
            return self.method(*args)

    def _is_large(self, args: Any) -> bool:
        """Whether the largest product of a call has the size from which oneDNN is faster."""
        return 2 * max(rows(args), default=0) * self.largest >= matmul_backend.onednn_from()
