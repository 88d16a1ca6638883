"""Tensors as bytes: the types a snapshot can hold, views of their memory, and safetensors files made of those."""

import hashlib
import json
from collections.abc import Mapping

import safetensors.torch
import torch
from torch import Tensor

HEADER_LIMIT = 16 << 20  # bytes at the head of a file that only describe; the largest agents need far fewer

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.bfloat16, torch.float16, torch.float32, torch.float64),
    )
}


SAFETENSORS = {name: f"{name[0].upper()}{8 * dtype.itemsize}" for name, dtype in DTYPES.items()}  # I8, U64, F32, ...
SAFETENSORS |= {"bool": "BOOL", "bfloat16": "BF16"}


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


def dump(tensors: Mapping[str, Tensor]) -> list[memoryview]:
    """A safetensors file of CPU tensors, in parts, without a copy of them (the library makes two)."""
    header, parts, end = {}, [], 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):  # all aligned
        part = raw(tensors[name])
        start, end = end, end + len(part)
        dtype, shape = SAFETENSORS[dtype_name(tensors[name])], list(tensors[name].shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [memoryview(len(text).to_bytes(8, "little")), memoryview(text), *parts]


def load(content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file, in memory of their own. Any Exception where it is none."""
    if int.from_bytes(content[:8], "little") > HEADER_LIMIT:
        raise ValueError(f"a header of more than {HEADER_LIMIT} bytes")
    found = safetensors.torch.load(content)
    for tensor in found.values():
        dtype_name(tensor)
    return found
