"""Converts state to JSON and tensors, and back without any loss. Nothing is pickled.

A state maps names to trees. A tree consists of dicts, lists and tuples with the leaves None, bool, int, float, str,
bytes, NumPy arrays and scalars, and tensors. Its skeleton is JSON, with `{"$tag": ...}` for values that JSON cannot
represent. The name of an array is its place in the state, written as a JSON pointer (RFC 6901) without the first slash,
so all names are different.
"""

import math
import struct
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlrun.snapshot.tensors import dtype_name


def encode(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the skeleton and the tensors of a state. Tensors are contiguous copies on the CPU.

    Raises TypeError, with the place in the state, for a leaf that could not be restored exactly.
    """
    tensors: dict[str, Tensor] = {}
    if not all(_plain(name) and name != "__metadata__" for name in state):  # safetensors reserves this name
        raise TypeError(f"state names must be printable and without a leading $: {list(state)}")
    return {name: _encode(tree, _escape(name), tensors) for name, tree in state.items()}, tensors


def decode(skeleton: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns a state from its skeleton and tensors.

    Raises KeyError, TypeError or ValueError for a skeleton that `encode` cannot have written. It must use every tensor
    exactly once; an untrusted file that repeats a tensor could otherwise fill the memory.
    """
    if not isinstance(skeleton, dict):
        raise TypeError("not a state")
    unused = dict(tensors)
    state = {name: _decode(tree, unused) for name, tree in skeleton.items()}
    if unused:
        raise ValueError(f"the tensor {min(unused)!r} is not used by the state")
    return state


def _encode(tree: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    kind = type(tree)
    if tree is None or kind in (bool, str):
        return tree
    if kind is int:  # larger integers are hexadecimal, as other JSON readers and Python limit decimal numbers
        if -(2**63) <= tree < 2**63:
            return tree
        return {"$int": hex(tree)}
    if kind is float:  # infinity and NaN are stored as their bits
        if math.isfinite(tree):
            return tree
        return {"$float": struct.pack(">d", tree).hex()}
    if kind is list:
        return _encode_items(tree, place, tensors)
    if kind is tuple:
        return {"$tuple": _encode_items(tree, place, tensors)}
    if kind in (dict, OrderedDict):
        if all(map(_plain, tree)):
            return {key: _encode(value, f"{place}/{_escape(key)}", tensors) for key, value in tree.items()}
        return {"$dict": _encode_items(list(map(list, tree.items())), place, tensors)}
    return _encode_array(tree, place, tensors)


def _encode_items(items: Any, place: str, tensors: dict[str, Tensor]) -> list[Any]:
    return [_encode(item, f"{place}/{index}", tensors) for index, item in enumerate(items)]


def _encode_array(leaf: Any, place: str, tensors: dict[str, Tensor]) -> dict[str, str]:
    try:
        if isinstance(leaf, Tensor):
            dtype_name(leaf)
            tag, tensor = "$tensor", leaf.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        elif type(leaf) is bytes:
            tag, tensor = "$bytes", torch.from_numpy(np.frombuffer(leaf, np.uint8).copy())
        elif type(leaf) is np.ndarray:
            tag, tensor = "$array", torch.from_numpy(leaf.copy(order="C"))
        elif isinstance(leaf, np.generic):
            tag, tensor = "$scalar", torch.from_numpy(np.array(leaf))
        else:
            raise TypeError(f"a snapshot cannot hold a {type(leaf).__qualname__}")
        dtype_name(tensor)
    except (TypeError, ValueError) as error:  # from_numpy does not accept objects, dates and non-native byte orders
        raise TypeError(f"{place}: {error}") from None
    tensors[place] = tensor
    return {tag: place}


def _decode(tree: Any, unused: dict[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_decode(item, unused) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if not any(key.startswith("$") for key in tree):
        return {key: _decode(value, unused) for key, value in tree.items()}
    ((tag, value),) = tree.items()
    return _decode_tag(tag, value, unused)


def _decode_tag(tag: str, value: Any, unused: dict[str, Tensor]) -> Any:
    match tag:
        case "$int" if hex(int(value, 16)) == value:
            return int(value, 16)
        case "$float":
            return struct.unpack(">d", bytes.fromhex(value))[0]
        case "$tuple" if isinstance(value, list):
            return tuple(_decode(value, unused))
        case "$dict" if isinstance(value, list):
            return dict(_decode(value, unused))
        case "$tensor":
            return _take(value, unused)
        case "$bytes":
            return _take(value, unused).numpy().tobytes()
        case "$array":
            return _take(value, unused).numpy()
        case "$scalar":
            return _take(value, unused).numpy()[()]
    raise ValueError(f"bad tag {tag!r}")


def _take(place: Any, unused: dict[str, Tensor]) -> Tensor:
    if place not in unused:
        raise ValueError(f"the tensor {place!r} is missing or used twice")
    return unused.pop(place)


def _plain(key: Any) -> bool:
    return type(key) is str and key.isprintable() and not key.startswith("$")


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
