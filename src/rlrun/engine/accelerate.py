"""Replaces an agent's kernels, on the instance, by faster ones. Parameter names and agent files never change."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.config.schema import TrainerConfig
from rlrun.core.random import Stream
from rlrun.engine import products
from rlrun.engine.graphs import Graphed
from rlrun.engine.script import leaves
from rlrun.engine.tape import Taped
from rlrun.errors import ConfigError

Kernel = Callable[..., Any]


def kernels(agent: nn.Module, mark: str = "is_kernel") -> list[tuple[nn.Module, str]]:
    """Every kernel in the tree, or every method with another mark: (module, method name)."""
    return [
        (module, name)
        for module in agent.modules()
        for name in dir(type(module))
        if getattr(getattr(type(module), name, None), mark, False)
    ]


def accelerate(agent: nn.Module, cfg: TrainerConfig, device: torch.device) -> None:
    """Wrap all kernels as `trainer.engine` and `trainer.precision` say."""
    if cfg.engine == "cudagraph" and device.type != "cuda":
        raise ConfigError(f"trainer.engine=cudagraph: needs device=cuda; this run is on {device}")
    wrap = wrapper(cfg.engine, device)
    for module, name in kernels(agent):
        method = getattr(module, name)
        if cfg.precision == "bf16":
            method = autocast(method, device)
        method = wrap(method, module)
        if cfg.precision != "bf16" and device.type == "cpu":
            method = Products(method, module)
        object.__setattr__(module, name, method)
    if cfg.engine in ("auto", "compile") and device.type == "cpu":
        for module, name in kernels(agent, "is_policy"):
            streams = [part for part in module.modules() if isinstance(part, Stream)]
            object.__setattr__(module, name, Taped(getattr(module, name), streams))


def wrapper(engine: str, device: torch.device) -> Callable[[Kernel, nn.Module], Kernel]:
    """What makes a faster kernel of one and its module."""
    if engine == "auto" and device.type == "cpu":
        return lambda method, module: Taped(method)
    if engine in ("auto", "eager"):
        return lambda method, module: method
    if engine == "cudagraph":
        return lambda method, module: Graphed(method)
    from rlrun.engine import native  # torch's compiler takes a second to import

    return native.Compiled


def autocast(method: Kernel, device: torch.device) -> Kernel:
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
        large = self.large.get(first := _rows(args))
        if large is None:
            rows = max((len(tensor) for tensor in leaves(args) if tensor.dim()), default=0)
            large = self.large[first] = 2 * rows * self.largest >= products.onednn_from()
        if not large:
            return self.method(*args)
        with products.onednn():
            return self.method(*args)


def _rows(args: Any) -> int | None:
    """Of the first tensor that has any."""
    if isinstance(args, Tensor):
        return len(args) if args.dim() else None
    parts = args.values() if isinstance(args, dict) else args if isinstance(args, tuple | list) else ()
    return next((rows for part in parts if (rows := _rows(part)) is not None), None)
