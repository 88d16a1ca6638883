"""Whether a recording does what its kernel does: both run on the same state and are compared bit for bit."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.engine.arguments import leaves
from rlrun.engine.recorder import Call, Recorder, changed_memory, memory, whole, written

PLAIN = (bool, int, float, str)
Attributes = dict[tuple[nn.Module, str], tuple[Any, int]]


class Trial:
    """A recording that is not trusted yet, with all that it changes."""

    def __init__(self, tape: Callable[..., Any], calls: list[Call], inputs: list[Tensor]):
        self.tape = tape
        self.state = written(calls, inputs)
        self.generators: list[torch.Generator] = []  # that calls draw from
        for call in calls:
            generator = call.kwargs.get("generator")
            if generator is not None and generator not in self.generators:
                self.generators.append(generator)
        changed = changed_memory(calls)
        self.changed_inputs = [index for index, tensor in enumerate(inputs) if memory(tensor) in changed]

    def run(
        self, method: Callable[..., Any], module: nn.Module, inputs: list[Tensor], args: Any, kwargs: Any
    ) -> tuple[Any, str | None]:
        """Replay, put the state back, and run the kernel as written.

        Returns what the kernel returned, and how the replay differs from it, or None. The state, random streams
        included, is the one that the kernel leaves. A copy of what it changes exists meanwhile.
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
        if name := changed_attribute(held, module):
            return out, f"it changes {name}"
        if not same_bits(replayed, expected):
            return out, "its recording gives other numbers"
        if not self.state.keys() >= written(recorder.calls, inputs).keys():
            return out, "it changes other tensors than when it was recorded"
        return out, None

    def draws(self) -> list[Tensor]:
        """The states of the random generators."""
        return [generator.get_state() for generator in self.generators]


def copies(tensors: list[Tensor]) -> list[Tensor]:
    """Copies of tensors, in memory of their own."""
    return [tensor.detach().clone() for tensor in tensors]


def same_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    """Whether tensors are equal in shape, type and every bit: NaN equals itself, 0.0 is not -0.0."""
    return len(first) == len(second) and all(map(_equal, first, second))


def _equal(one: Tensor, other: Tensor) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def attributes(module: nn.Module) -> Attributes:
    """The values of all attributes of a module and its parts, with the lengths of lists, dicts and sets."""
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
    """The first attribute with another value than before, as `Class.name`: Python state, which a replay does not
    change. Tensors that are changed in place do not count."""
    after = attributes(module)
    for part, name in {**before, **after}:
        if not _unchanged(before.get((part, name)), after.get((part, name))):
            return f"{type(part).__name__}.{name}"
    return None


def _unchanged(one: tuple[Any, int] | None, other: tuple[Any, int] | None) -> bool:
    if one is None or other is None:
        return False
    (first, size), (second, other_size) = one, other
    same = first is second or (isinstance(first, PLAIN) and type(first) is type(second) and first == second)
    return same and size == other_size
