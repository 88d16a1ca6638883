"""Whether a recording does what its kernel does: both run on the same state and are compared bit for bit."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.engine.arguments import leaves
from rlrun.engine.recorder import Call, Recorder, memory, whole, written

PLAIN = (bool, int, float, str)
Attributes = dict[tuple[nn.Module, str], tuple[Any, int]]


class Trial:
    """A recording that is not trusted yet, with all that it changes."""

    def __init__(self, tape: Callable[..., Any], calls: list[Call], inputs: list[Tensor]):
        changed = {memory(tensor) for call in calls for tensor in call.changed}
        self.tape = tape
        self.state = written(calls, inputs)
        generators = {id(call.kwargs.get("generator")): call.kwargs.get("generator") for call in calls}
        self.generators = [generator for generator in generators.values() if generator is not None]
        self.changed_inputs = [index for index, tensor in enumerate(inputs) if memory(tensor) in changed]

    def run(
        self, method: Callable[..., Any], module: nn.Module, inputs: list[Tensor], args: Any, kwargs: Any
    ) -> tuple[Any, str | None]:
        """Replay, put the state back, and run the kernel as written.

        Returns what the kernel returned, and how the replay differs from it, or None. The state, random streams
        included, is the one that the kernel leaves. A copy of what it changes exists meanwhile.
        """
        state = [*self.state.values(), *(whole(inputs[index]) for index in self.changed_inputs)]
        before, draws_before = copies(state), self.draws()
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
        """Where the random generators stand."""
        return [generator.get_state() for generator in self.generators]


def copies(tensors: list[Tensor]) -> list[Tensor]:
    """The same numbers in memory of their own."""
    return [tensor.detach().clone() for tensor in tensors]


def same_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    """Whether tensors are equal in shape, type and every bit: NaN equals itself, 0.0 is not -0.0."""
    return len(first) == len(second) and all(map(_equal, first, second))


def _equal(one: Tensor, other: Tensor) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    one, other = (tensor.detach().reshape(-1).view(torch.uint8) for tensor in (one, other))
    return torch.equal(one, other)


def attributes(module: nn.Module) -> Attributes:
    """What the attributes of a module and its parts hold, with the lengths of lists, dicts and sets."""
    found: Attributes = {}
    for part in module.modules():
        tensors = (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
        for name, value in (*vars(part).items(), *tensors):
            size = len(value) if isinstance(value, list | dict | set) else 0
            found[part, name] = value, size
    return found


def changed_attribute(before: Attributes, module: nn.Module) -> str | None:
    """The first attribute that holds something else than before, as `Class.name`: Python state, which no recording
    changes. Tensors that are changed in place are none."""
    after = attributes(module)
    for part, name in [*before, *(key for key in after if key not in before)]:
        if not _unchanged(before.get((part, name)), after.get((part, name))):
            return f"{type(part).__name__}.{name}"
    return None


def _unchanged(one: tuple[Any, int] | None, other: tuple[Any, int] | None) -> bool:
    if one is None or other is None:
        return False
    (first, size), (second, other_size) = one, other
    same = first is second or (isinstance(first, PLAIN) and type(first) is type(second) and first == second)
    return same and size == other_size
