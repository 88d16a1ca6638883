"""Types in which floats are stored to save memory. Integers, such as images, keep their type."""

from collections.abc import Callable
from typing import Literal, TypeVar

import torch
from torch import Tensor

from rlrun.errors import ConfigError
from rlrun.nested import leaves, mapped

T = TypeVar("T")
FloatType = Literal["float32", "float16", "bfloat16"]


def stored_as(dtype: FloatType, tree: T, setting: str, what: str) -> T:
    """Returns a tree of tensors with its floats in this type.

    Raises ConfigError, which names the setting and what the numbers are of, if the type cannot hold one of them.
    """
    stored: T = mapped(as_type(getattr(torch, dtype)), tree)
    for leaf in leaves(stored):
        if leaf.is_floating_point() and not leaf.isfinite().all():
            raise ConfigError(f"{setting}={dtype}: is too small for the numbers of {what}")
    return stored


def restored(tree: T) -> T:
    """Returns a tree of stored tensors with floats of type float32."""
    whole: T = mapped(as_type(torch.float32), tree)
    return whole


def as_type(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Returns a function that converts tensors of floats to `dtype`, and returns other tensors as they are."""

    def convert(leaf: Tensor) -> Tensor:
        if leaf.is_floating_point():
            return leaf.to(dtype)
        return leaf

    return convert
