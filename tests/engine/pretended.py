"""A simulated device. Its tensors hold CPU memory, and operations that CUDA refuses are refused: operations on tensors
of two devices, and NumPy arrays of its tensors. So a CPU can test whether a run keeps its tensors on its device.

torch's `meta` stands for the device, because it exists on every machine.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves, tree_map

HERE, THERE = torch.device("cpu"), torch.device("meta")
aten = torch.ops.aten
INDEXING = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default)  # scalars may be on the CPU
ANYWHERE = (aten._to_copy.default, aten.copy_.default, aten._local_scalar_dense.default)


class Away(Tensor):
    """A tensor on the simulated device; `held` is its memory on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Away":
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=THERE, requires_grad=False
        )
        made.held = held
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "tolist" and any(isinstance(mode, Unwaited) for mode in _get_current_dispatch_mode_stack()):
            refuse(name)
        if name == "numpy":
            raise TypeError("can't convert a tensor of the device to NumPy")
        if name == "tolist":
            return args[0].held.tolist()
        if name == "new_tensor":
            return torch.tensor(args[1], dtype=(kwargs or {}).get("dtype") or args[0].dtype, device=THERE)
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        if func is Tensor.data.__set__:
            args[0].held = args[1].held
        return out

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(op, args, kwargs or {})


class Dispatch(TorchDispatchMode):
    """Handles operations that create tensors."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(op, args, kwargs or {})


def call(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Calls an operation on the CPU memory; the result is on the device on which CUDA would return it."""
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    check(op, args, given)
    named = kwargs.get("device")
    away = torch.device(named) == THERE if named is not None else any(isinstance(tensor, Away) for tensor in given)
    if op is aten.copy_.default:
        away = isinstance(args[0], Away)
    plain = {name: value for name, value in kwargs.items() if name not in ("pin_memory", "non_blocking")}
    plain |= {} if named is None else {"device": HERE}
    held = [tensor.held if isinstance(tensor, Away) else tensor for tensor in given]
    inner, named_inner = tree_map(lambda leaf: leaf.held if isinstance(leaf, Away) else leaf, (args, plain))
    out = op(*inner, **named_inner)
    if op is aten._to_copy.default and out is inner[0]:
        out = out.clone()
    if not away:
        return out
    same = {id(inside): outside for inside, outside in zip(held, given, strict=True)} if op._schema.is_mutable else {}
    return tree_map(lambda leaf: same.get(id(leaf), Away(leaf)) if isinstance(leaf, Tensor) else leaf, out)


def check(op: Any, args: Any, given: list[Tensor]) -> None:
    """Raises RuntimeError if an operation mixes CPU tensors, except scalars and indices, with tensors of the device."""
    strangers = [tensor for tensor in given if not isinstance(tensor, Away)]
    if not strangers or len(strangers) == len(given) or op in ANYWHERE:
        return
    if op in INDEXING and isinstance(args[0], Away):
        return
    if op in INDEXING or any(tensor.dim() for tensor in strangers):
        raise RuntimeError(f"{op}: tensors on the device and on the CPU, {[tuple(tensor.shape) for tensor in given]}")


class Generator(torch.Generator):
    """Draws on the CPU and reports the simulated device."""

    where = HERE

    @property
    def device(self) -> torch.device:
        return self.where


class Generators(type):
    """Replaces torch.Generator; its instances are torch's generators."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Generator.__base__)

    def __call__(cls, device: Any = "cpu") -> Any:
        made = Generator("cpu")
        made.where = torch.device(device)
        return made


class AnyGenerator(metaclass=Generators):
    pass


def default_device() -> torch.device:
    modes = [mode.device for mode in _get_current_function_mode_stack() if hasattr(mode, "device")]
    return torch.device(modes[-1]) if modes else HERE


def placed(make: Any) -> Any:
    """Replaces torch.tensor or torch.as_tensor, which are not dispatched: creates on the CPU, then moves."""

    def placing(data: Any, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
        if isinstance(data, Tensor):
            return data.to(device=device or data.device, dtype=dtype or data.dtype)
        made: Tensor = make(data, dtype=dtype, device="cpu", **options)
        where = default_device() if device is None else torch.device(device)
        return made.to(where) if where == THERE else made

    return placing


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Replaces torch.nn.init.orthogonal_, which does not change tensors on `meta`."""
    with torch.no_grad():
        return tensor.copy_(orthogonal_on_cpu(torch.empty(tensor.shape, device=HERE), gain))


orthogonal_on_cpu = nn.init.orthogonal_


@contextmanager
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Simulates the device within a `with` block."""
    with monkeypatch.context() as patch:
        patch.setattr(torch, "tensor", placed(torch.tensor))
        patch.setattr(torch, "as_tensor", placed(torch.as_tensor))
        patch.setattr(torch, "Generator", AnyGenerator)
        patch.setattr(nn.init, "orthogonal_", orthogonal_)
        patch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
        with Dispatch():
            yield THERE


# Functions of acting and learning that wait for the device, and why they may.
MAY_WAIT = {
    "critic_updates.py:values": "once for a rollout: the number of episode ends sets how many rows the critic sees",
    "trust_regions.py:pull": "once or twice for a step: the distance sets how often the step is shortened",
    "minibatches.py:rows_and_padding": "once for a rollout: the number of masked steps sets the number of minibatches",
    "regression.py:add": "each arm learns from its own pulls; the posterior of a bandit is small",
    "neural_linear.py:update": "asks replay, which the host indexes, for the pulls that are not in the posterior yet",
    "bayesian.py:update": "a reward outside [0, 1] is refused before a posterior holds it",
    "posteriors.py:normal_inverse_gamma": "the solver reports singular matrices",
    "posteriors.py:normal_inverse_gamma_draw": "the solver reports singular matrices",
    "baselines.py:linear_baseline": "the solver reports singular matrices",
    "covariance.py:decompose": "torch.linalg.eigh waits",
    "search.py:__init__": "copies the plan of sequential halving, which the host makes, to the device",
}


class Unwaited(TorchDispatchMode):
    """Refuses operations whose results the program would have to wait for, except those in `MAY_WAIT`."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if waits(op, args, kwargs or {}):
            refuse(op)
        return op(*args, **(kwargs or {}))


def waits(op: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Returns whether the result, or its shape, depends on values that are on the device."""
    if op in INDEXING:
        return any(index is not None and index.dtype == torch.bool for index in args[1])
    if op is aten._to_copy.default and kwargs.get("device") is not None:
        return isinstance(args[0], Away) and torch.device(kwargs["device"]) == HERE
    return torch.Tag.data_dependent_output in op.tags or torch.Tag.dynamic_output_shape in op.tags


def refuse(op: Any) -> None:
    """Raises AssertionError, unless a function on the stack may wait."""
    if not may_wait():
        raise AssertionError(f"{op} waits for the device")


def may_wait() -> bool:
    """Returns whether one of the functions on the stack may wait for the device."""
    return any(f"{frame.filename.rpartition('/')[2]}:{frame.name}" in MAY_WAIT for frame in traceback.extract_stack())


def watched(loop: Any, watch: Callable[[], Any]) -> None:
    """Lets the agent of a loop act and learn, and its add-ons see and learn, within `watch()`."""

    def watching(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with watch():
                return method(*args, **kwargs)

        return call

    for owner, names in ((loop.agent, ("act", "update")), (loop.addons, ("see", "update"))):
        for name in names:
            setattr(owner, name, watching(getattr(owner, name)))
