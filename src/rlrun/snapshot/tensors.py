"""Tensors as bytes: the types a snapshot can hold, and views of their memory."""

import hashlib

import torch
from torch import Tensor

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.bfloat16, torch.float16, torch.float32, torch.float64),
    )
}


def dtype_name(tensor: Tensor) -> str:
    """`float32`, `bool`, ... Raises TypeError for what a snapshot cannot hold."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES or tensor.layout is not torch.strided:
        raise TypeError(f"a snapshot cannot hold a tensor of {tensor.dtype} ({tensor.layout})")
    return name


def raw(tensor: Tensor) -> memoryview:
    """The bytes of a CPU tensor in row-major order; not copied where they lie so already."""
    tensor = tensor.contiguous()
    # not reshape(-1): a dimension of size one may have any stride, which `view` refuses
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data


def sha256(tensor: Tensor) -> str:
    """Hex SHA-256 of the bytes of a CPU tensor."""
    return hashlib.sha256(raw(tensor)).hexdigest()
