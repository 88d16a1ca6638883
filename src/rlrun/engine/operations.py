"""Chooses the functions that replay recorded operations: torch's Python functions if possible, at half the overhead."""

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

# operations that return their argument unchanged, if the shape stays the same
IDENTITIES = {
    aten.detach.default, aten.alias.default, aten.lift_fresh.default, aten.view.default, aten._unsafe_view.default,
    aten.expand.default,
}  # fmt: skip

# operations that change only the shape: the elements and their order stay the same
RESHAPES = {
    aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim,
    aten.squeeze.dims,
}  # fmt: skip

# operations whose results depend only on shapes and constants
SHAPED = {
    aten.zeros.default, aten.ones.default, aten.full.default, aten.arange.default, aten.scalar_tensor.default,
    aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.new_zeros.default,
    aten.new_ones.default,
}  # fmt: skip

# names of operations that are replayed as functions of torch
FUNCTIONS = {
    "abs", "add", "addmm", "amax", "amin", "argmax", "baddbmm", "bitwise_not", "bmm", "cat", "clamp", "cumsum",
    "div", "eq", "exp", "expm1", "gather", "ge", "gt", "index_select", "le", "log", "log1p", "logsumexp", "lt",
    "maximum", "mean", "minimum", "mm", "mul", "ne", "neg", "pow", "rand", "randint", "randn", "reciprocal", "relu",
    "rsub", "sigmoid", "sqrt", "squeeze", "stack", "std", "sub", "sum", "t", "tanh", "transpose", "unsqueeze",
    "where", "zeros_like",
    "ones_like", "split", "unbind", "select", "_fused_adam_", "_fused_adamw_", "_foreach_lerp_", "_foreach_add_",
    "_foreach_mul_",
}  # fmt: skip
# and as methods of torch.Tensor
METHODS = {
    "expand", "view", "add_", "mul_", "sub_", "div_", "copy_", "lerp_", "logical_or_", "fill_", "zero_", "clamp_",
}  # fmt: skip

# pointwise operations: their result may overwrite an argument that is not needed afterwards
POINTWISE = {
    "abs", "add", "clamp", "div", "exp", "log", "maximum", "minimum", "mul", "neg", "pow", "reciprocal",
    "sigmoid", "sqrt", "sub", "tanh",
}  # fmt: skip


def _name(op: Any) -> str:
    return str(op._schema.name).removeprefix("aten::")


def call_of(call: Any) -> Callable[..., object]:
    """Returns a function that repeats a recorded call, given its arguments."""
    op = call.op
    name = _name(op)
    if op.namespace != "aten":
        return op
    if name in ("mm", "bmm") and call.given[0].shape[-1] == 1:  # an outer product, without a sum
        return torch.mul
    # the workspace, which the backward pass needs, is only returned if gradients are enabled
    if op is aten.mkldnn_rnn_layer.default and call.out[3] is not None:
        return torch.enable_grad()(op)
    if name in FUNCTIONS:
        return getattr(torch, name, op)
    if name in METHODS:
        return getattr(torch.Tensor, name)
    return op


def scalar_constant(call: Any, value: Any) -> object:
    """Returns an argument for a replay: a number in `add`, `sub`, `mul` or `div` as a tensor, other values unchanged.

    torch would otherwise convert the number to a tensor in every call.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or len(call.args) != 2 or call.kwargs:
        return value
    if _name(call.op) not in ("add", "sub", "mul", "div"):
        return value
    dtype = call.results[0].dtype
    if dtype != call.given[0].dtype:
        return value
    return torch.tensor(value, dtype=dtype)


def in_place(op: Any) -> Callable[..., object] | None:
    """Returns a pointwise operation as a function that writes its result to `out`; None for other operations."""
    if op is aten.relu.default:
        return _relu
    if op is aten.threshold_backward.default:
        return _threshold_backward
    if op is aten.tanh_backward.default:
        return _tanh_backward
    if op.namespace == "aten" and _name(op) in POINTWISE:
        return getattr(torch, _name(op))
    return None


def _relu(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.relu_(x)  # `out` is always an argument that is overwritten, here x


def _threshold_backward(grad: torch.Tensor, x: torch.Tensor, threshold: float, out: torch.Tensor) -> torch.Tensor:
    return aten.threshold_backward.grad_input(grad, x, threshold, grad_input=out)


def _tanh_backward(grad: torch.Tensor, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return aten.tanh_backward.grad_input(grad, x, grad_input=out)
