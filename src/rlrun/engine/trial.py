"""Checks a recording against its kernel: runs both on the same state and compares the results bit for bit."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.engine.arguments import leaves
from rlrun.engine.reads import Reads
from rlrun.engine.recorder import Call, Recorder, changed_memory, generators_of, memory, whole, written

PLAIN = (bool, int, float, str)
Attributes = dict[tuple[nn.Module, str], tuple[object, int]]  # (module, name) -> (value, length), from `attributes`


class RecordingTrial:
    """Holds a recording that has not been checked yet, and the tensors and random generators that it changes."""

    def __init__(self, tape: Callable[..., object], reads: Reads, calls: list[Call], inputs: list[Tensor]):
        self.tape = tape
        self.reads = reads
        self.state = written(calls, inputs)
        self.generators = generators_of(calls)
        changed = changed_memory(calls)
        self.changed_inputs = [index for index, tensor in enumerate(inputs) if memory(tensor) in changed]

    def run(
        self, method: Callable[..., object], module: nn.Module, inputs: list[Tensor], args: Any, kwargs: Any
    ) -> tuple[object, str | None]:
        """Replays the recording, restores the state, and runs the original kernel.

        Returns the kernel's result, and a description of how the replay differs from the kernel, or None if they agree.
        Afterwards the state, including that of the random generators, is as the kernel left it. Needs memory for
        copies of all tensors that the recording changes.
        """
        state = list(self.state.values())
        for index in self.changed_inputs:
            state.append(whole(inputs[index]))
        before = copies(state)
        draws_before = self.draws()
        replayed = copies(leaves(self.tape(*inputs)))
        replayed += copies(state) + self.draws()
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        for generator, value in zip(self.generators, draws_before, strict=True):
            generator.set_state(value)
        held = attributes(module)
        with Recorder() as recorder:
            out = method(*args, **kwargs)
        expected = [*leaves(out), *state, *self.draws()]
        if name := changed_attribute(held, module) or self.reads.changed():
            return out, f"it changes {name}"
        if not same_bits(replayed, expected):
            return out, "its recording gives different results"
        if not self.state.keys() >= written(recorder.calls, inputs).keys():
            return out, "it changes tensors that it did not change when it was recorded"
        return out, None

    def draws(self) -> list[Tensor]:
        """Returns the states of the random generators."""
        return [generator.get_state() for generator in self.generators]


def copies(tensors: list[Tensor]) -> list[Tensor]:
    """Returns copies of tensors that share no memory with the originals."""
    return [tensor.detach().clone() for tensor in tensors]


def same_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    """Returns whether the tensors of two lists are equal in shape, dtype and every bit.

    A NaN equals a NaN with the same bits; 0.0 does not equal -0.0.
    """
    return len(first) == len(second) and all(map(_equal, first, second))


def _equal(one: Tensor, other: Tensor) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def attributes(module: nn.Module) -> Attributes:
    """Returns the attributes of a module and its submodules, each with its length if it is a list, dict or set.

    The length of other attributes is given as 0.
    """
    found: Attributes = {}
    for part in module.modules():
        tensors = (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
        for name, value in (*vars(part).items(), *tensors):
            size = 0
            if isinstance(value, list | dict | set):
                size = len(value)
            found[part, name] = value, size
    return found


def changed_attribute(before: Attributes, module: nn.Module) -> str | None:
    """Returns the first attribute whose value changed since `before`, as `Class.name`, or None.

    A replay cannot repeat changes of Python state. Tensors that are changed in place do not count as changed.
    """
    after = attributes(module)
    for part, name in {**before, **after}:
        if not _unchanged(before.get((part, name)), after.get((part, name))):
            return f"{type(part).__name__}.{name}"
    return None


def _unchanged(one: tuple[object, int] | None, other: tuple[object, int] | None) -> bool:
    if one is None or other is None:
        return False
    first, first_size = one
    second, second_size = other
    if first_size != second_size:
        return False
    if first is second:
        return True
    return isinstance(first, PLAIN) and type(first) is type(second) and first == second
