"""Conversion between tensors and bytes: the dtypes that a snapshot supports, and reading and writing safetensors."""

import hashlib
import json
from collections.abc import Mapping

import safetensors.torch
import torch
from torch import Tensor

HEADER_LIMIT = 16 << 20  # maximum size of a safetensors header in bytes; those of the largest agents are far smaller

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
    """Returns the name of a tensor's dtype, such as `float32` or `bool`.

    Raises TypeError if a snapshot does not support the dtype or the layout.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES or tensor.layout is not torch.strided:
        raise TypeError(f"a snapshot cannot store a tensor of dtype {tensor.dtype} with layout {tensor.layout}")
    return name


def raw(tensor: Tensor) -> memoryview:
    """Returns the bytes of a CPU tensor in row-major order. Copies them only if the tensor is not contiguous."""
    tensor = tensor.contiguous()
    # reshape(-1) would keep the stride of a dimension of size one, which may be any number, and `view` would raise
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data


def sha256(tensor: Tensor) -> str:
    """Returns the SHA-256 of the bytes of a CPU tensor in hexadecimal."""
    return hashlib.sha256(raw(tensor)).hexdigest()


def dump(tensors: Mapping[str, Tensor]) -> list[memoryview]:
    """Returns the contents of a safetensors file of CPU tensors, as consecutive chunks.

    Contiguous tensors are not copied; `safetensors.torch.save` would copy them twice.
    """
    header, parts, end = {}, [], 0
    # tensors with the largest elements come first, so that all are aligned
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):
        part = raw(tensors[name])
        start, end = end, end + len(part)
        dtype, shape = SAFETENSORS[dtype_name(tensors[name])], list(tensors[name].shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [memoryview(len(text).to_bytes(8, "little")), memoryview(text), *parts]


def load(content: bytes) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file; they do not share memory with `content`.

    May raise any Exception if the content is not a valid safetensors file.
    """
    if int.from_bytes(content[:8], "little") > HEADER_LIMIT:
        raise ValueError(f"the safetensors header is larger than {HEADER_LIMIT} bytes")
    found = safetensors.torch.load(content)
    for tensor in found.values():
        dtype_name(tensor)
    return found
