"""Replaces an agent's kernels, on the instance, by faster ones. Parameter names and agent files never change."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rlrun.config.schema import TrainerConfig
from rlrun.engine import products
from rlrun.engine.arguments import rows
from rlrun.engine.support import running

Kernel = Callable[..., Any]
Wrapper = Callable[[Kernel, nn.Module], Kernel]


def kernels(agent: nn.Module, mark: str = "is_kernel") -> list[tuple[nn.Module, str]]:
    """Every kernel in the tree, or every method with another mark: (module, method name)."""
    return [
        (module, name)
        for module in agent.modules()
        for name in dir(type(module))
        if getattr(getattr(type(module), name, None), mark, False)
    ]


def accelerate(agent: nn.Module, cfg: TrainerConfig, device: torch.device) -> None:
    """Wrap all kernels as `trainer.engine` and `trainer.precision` say. An engine that cannot be had here leaves them
    as written, with one line."""
    engine = running(cfg.engine, device)
    wrap = wrapper(engine, device)
    for module, name in kernels(agent):
        method = getattr(module, name)
        if cfg.precision == "bf16":
            method = autocast(method, device)
        method = wrap(method, module)
        if cfg.precision != "bf16" and device.type == "cpu":
            method = Products(method, module)
        object.__setattr__(module, name, method)
    if engine in ("auto", "compile") and device.type == "cpu":
        wrap = wrapper("auto", device)
        for module, name in kernels(agent, "is_policy"):
            object.__setattr__(module, name, wrap(getattr(module, name), module))


def wrapper(engine: str, device: torch.device) -> Wrapper:
    """What makes a faster kernel of one and its module. Recorders and compilers are imported here alone."""
    if engine == "eager" or (engine == "auto" and device.type != "cpu"):
        return as_written
    if engine == "auto":
        from rlrun.engine.tape import Taped

        return Taped
    if engine == "cudagraph":
        from rlrun.engine.graphs import Graphed

        return Graphed
    from rlrun.engine.native import Compiled  # torch's compiler takes a second to import

    return Compiled


def as_written(method: Kernel, module: nn.Module) -> Kernel:
    """The kernel itself."""
    return method


def autocast(method: Kernel, device: torch.device) -> Kernel:
    """A kernel whose products are in bf16."""

    @functools.wraps(method)
    def call(*args: Any) -> Any:
        with torch.autocast(device.type, torch.bfloat16):
            return method(*args)

    return call


class Products:
    """Takes the path that suits a kernel's largest product: decided by shapes alone, once for each number of rows."""

    def __init__(self, method: Kernel, module: nn.Module):
        self.method = method
        # the last two dimensions of a weight make one product; a leading one stacks members
        self.largest = max((p.shape[-1] * p.shape[-2] for p in module.parameters() if p.dim() in (2, 3)), default=0)
        self.large: dict[int | None, bool] = {}

    def __call__(self, *args: Any) -> Any:
        first = next(rows(args), None)
        large = self.large.get(first)
        if large is None:
            large = self.large[first] = 2 * max(rows(args), default=0) * self.largest >= products.onednn_from()
        if not large:
            return self.method(*args)
        with products.onednn():
            return self.method(*args)
