"""Finds the Python values that a kernel reads. A recording holds them as constants, so it is replayed only while they
are unchanged.

While a kernel is recorded, `Running` notes the Python functions that run and the objects in their local variables.
`Reads` then begins at the kernel's module, at the variables that its function encloses and at the globals of these
functions. It follows every name that the code of the functions contains to numbers, texts, containers and other
objects, and writes one function that compares all of them with their present values.

Not found are values behind names that the kernel computes, as `getattr(self, f"beta_{i}")`, values in the state of C
objects such as iterators and generators, and what only arguments of the kernel hold. If such a value changes in the
first ten calls, the check of the recording finds that (`trial.py`); later, the recording keeps the old value.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from cProfile import Profile
from functools import partial
from pathlib import Path
from types import (
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from rlrun.core.random import Stream

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
CONSTANT = (*PLAIN, Tensor, Space)  # types whose objects hold no Python values that change
REGISTRIES = ("_parameters", "_buffers", "_modules")  # dicts in which nn.Module keeps attributes
TORCH = str(Path(torch.__file__).parent)
BY_TEXT = {"getattr", "hasattr", "vars", "__dict__"}  # names in code that reads attributes whose names are texts
MISSING = object()

UNCHANGED = """
def unchanged():
    try:
        return {checks}
    except (AttributeError, LookupError, ValueError):
        return False
"""


class Running:
    """A context that notes which Python functions run, and the objects in their local variables."""

    def __init__(self) -> None:
        self.globals: dict[CodeType, dict[str, object]] = {}  # globals of every function that ran
        self.texts: dict[CodeType, set[str]] = {}  # names that functions may pass to `getattr` and its like
        self.holding: dict[int, set[CodeType]] = {}  # id of an object -> functions that had it in a local variable
        self.alive: list[object] = []  # keeps the objects alive, so that their ids stay unique

    def __enter__(self) -> "Running":
        self.outer = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        if isinstance(self.outer, Profile):  # `sys.setprofile` of Python 3.11 does not take it
            self.outer.enable()
        else:
            sys.setprofile(self.outer)

    def _note(self, frame: FrameType, event: str, result: object) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if frame.f_globals.get("__name__", "").startswith("rlrun.engine."):
            return
        self.globals[code] = frame.f_globals
        if not BY_TEXT.isdisjoint(code.co_names) and not is_torch(code):
            self.texts.setdefault(code, {*texts(code.co_consts)}).update(texts(frame.f_locals.values()))
        for value in frame.f_locals.values():
            self._hold(value, code)
        if event == "return" and frame.f_back is not None:
            self._hold(result, frame.f_back.f_code)

    def _hold(self, value: object, code: CodeType) -> None:
        if isinstance(value, CONSTANT):
            return
        self.holding.setdefault(id(value), set()).add(code)
        self.alive.append(value)


class Reads:
    """The Python values that a kernel reads, by where they are held. `unchanged` returns whether all are as they were.

    Numbers and texts are unchanged if type and value are equal (NaN equals NaN, 0.0 does not equal -0.0), arrays if
    their bytes are, and other objects if they are the same objects, tensors also at the same address in memory.
    """

    def __init__(self, method: Callable[..., object], module: nn.Module, running: Running):
        self.running = running
        self.namespace: dict[str, Any] = {"same": same}
        self.names: dict[int, str] = {}  # id of an object -> its name in the checks
        self.checks: dict[str, tuple[str, str]] = {}  # what is read -> the check of its value, and its description
        self.visited: set[tuple[int, CodeType]] = set()
        for part in module.modules():
            for code in running.holding.get(id(part), ()):
                self._follow(part, type(part).__name__, code)
        if isinstance(method, FunctionType | MethodType):
            self._follow(method, type(module).__name__, method.__code__)
        for code, variables in running.globals.items():
            self._follow_globals(variables, code)
        checks = [check for check, _ in self.checks.values()]
        source = UNCHANGED.format(checks=" and ".join(checks) or "True")
        exec(source, self.namespace)  # safe: this class writes the source, of its own names and names in code
        self.unchanged: Callable[[], bool] = self.namespace["unchanged"]
        del self.running, self.visited

    def changed(self) -> str | None:
        """Returns where the first value is held that has changed, such as `PPO.cfg.gamma`, or None."""
        for check, label in self.checks.values():
            try:
                unchanged = eval(check, self.namespace)
            except (AttributeError, LookupError, ValueError):
                unchanged = False
            if not unchanged:
                return label
        return None

    def _follow(self, value: Any, label: str, code: CodeType) -> None:
        """Adds what the names in `code` reach from a value, and what the names in functions that held it reach."""
        if isinstance(value, CONSTANT) or (id(value), code) in self.visited:
            return
        self.visited.add((id(value), code))
        if isinstance(value, dict | list | deque | tuple | set | np.ndarray):
            self._follow_entries(value, label, code)
        elif isinstance(value, Stream):  # its rows are checked by `Taped`
            self._link(f"{self._name(vars(value))}['generator']", value.generator, f"{label}.generator", code)
        elif isinstance(value, FunctionType | MethodType | partial):
            self._follow_function(value, label, code)
        elif isinstance(value, ModuleType):
            self._follow_globals(vars(value), code)
        elif type(value).__module__.startswith("rlrun.engine."):  # a kernel that this one calls
            self._follow(value.method, label, code)
        else:
            self._follow_attributes(value, label, code)
        for other in self.running.holding.get(id(value), ()):
            self._follow(value, label, other)

    def _follow_entries(self, holder: Any, label: str, code: CodeType) -> None:
        """Adds the entries of a container. Those of a tuple cannot change, but what they hold can."""
        name = self._name(holder)
        if isinstance(holder, tuple):
            for index, part in enumerate(holder):
                self._follow(part, f"{label}[{index}]", code)
        elif isinstance(holder, set):
            self._compare(f"sorted(map(repr, {name}))", sorted(map(repr, holder)), label)
        elif isinstance(holder, np.ndarray):
            self._compare(f"{name}.tobytes()", holder.tobytes(), label)
        else:
            self._compare(f"len({name})", len(holder), label)
            entries = holder.items() if isinstance(holder, dict) else enumerate(holder)
            for key, part in [*entries]:  # a copy, because a thread or a signal's handler may change the container
                self._link(f"{name}[{self._name(key)}]", part, f"{label}[{key!r}]", code)

    def _follow_function(self, function: Any, label: str, code: CodeType) -> None:
        """Adds the variables that a function encloses, the default values of its arguments, and what it is bound to."""
        if isinstance(function, partial):
            self._follow(function.func, label, code)
            self._follow(function.args, label, code)
            self._follow(function.keywords, label, code)
        elif isinstance(function, MethodType):
            self._follow(function.__func__, label, code)
            self._follow(function.__self__, label, code)
        else:
            own = function.__code__
            for name, cell in zip(own.co_freevars, function.__closure__ or (), strict=True):
                if cell == CellType() or name == "__class__":  # an empty cell, or the class that `super()` reads
                    continue
                if is_torch(own):  # a decorator, such as torch.no_grad
                    self._follow(cell.cell_contents, label, own)
                else:
                    found = f"{name} in {function.__qualname__}"
                    self._link(f"{self._name(cell)}.cell_contents", cell.cell_contents, found, own)
            self._follow(function.__defaults__, function.__qualname__, own)
            self._follow(function.__kwdefaults__, function.__qualname__, own)

    def _follow_attributes(self, holder: object, label: str, code: CodeType) -> None:
        for name in self._mentioned(code):
            read, value = self._attribute(holder, name)
            if read is not None:
                self._link(read, value, f"{label}.{name}", code)
            elif isinstance(value, property):
                self._follow(value.fget, label, code)
            elif isinstance(value, staticmethod | classmethod):
                self._follow(value.__func__, label, code)
            elif isinstance(value, FunctionType):
                self._follow(value, label, code)
            elif value is MISSING and name in self.running.texts.get(code, ()):  # as in getattr(self, "beta", 0.5)
                self._compare(f"hasattr({self._name(holder)}, {name!r})", False, f"{label}.{name}")

    def _attribute(self, holder: object, name: str) -> tuple[str | None, Any]:
        """Returns an expression for an attribute and its value, without running code of the holder.

        The expression is None for methods and properties, and for attributes that do not exist.
        """
        classes = holder.__mro__ if isinstance(holder, type) else type(holder).__mro__
        found = next((vars(cls)[name] for cls in classes if name in vars(cls)), MISSING)
        if isinstance(found, MemberDescriptorType):  # an entry of __slots__
            return f"{self._name(holder)}.{name}", getattr(holder, name, MISSING)
        if isinstance(found, property):
            return None, found
        own: dict[str, Any] = {}
        if not isinstance(holder, type):
            own = getattr(holder, "__dict__", own)
        for home in (own, *(own.get(registry, {}) for registry in REGISTRIES)):
            if name in home:  # a dict is read faster than an attribute of nn.Module
                return f"{self._name(home)}[{name!r}]", home[name]
        if found is MISSING or hasattr(found, "__get__"):
            return None, found
        return f"{self._name(holder)}.{name}", found

    def _follow_globals(self, variables: dict[str, Any], code: CodeType) -> None:
        home = variables.get("__name__", "?")
        if home.partition(".")[0] == "torch":
            return
        for name in self._mentioned(code):
            value = variables.get(name, MISSING)
            if isinstance(value, ModuleType | type) or getattr(value, "__name__", "") == name:
                self._follow(value, f"{home}.{name}", code)  # what an import, `class` or `def` has defined
            elif value is not MISSING:
                self._link(f"{self._name(variables)}[{name!r}]", value, f"{home}.{name}", code)

    def _mentioned(self, code: CodeType) -> Iterator[str]:
        """Yields the names in the code of a function that may be attributes or globals. Private ones of torch are left
        out."""
        public = is_torch(code)
        for name in (*code.co_names, *self.running.texts.get(code, ())):
            if name.isidentifier() and not (public and name.startswith("_")):
                yield name

    def _link(self, read: str, value: object, label: str, code: CodeType) -> None:
        """Adds the check that an expression gives a value, and follows the value."""
        check = f"{read} is {self._name(value)}"
        if is_plain(value):
            check = f"({check} or same({read}, {self._name(value)}))"
        elif isinstance(value, Tensor) and value.layout == torch.strided:  # `tensor.data = other` keeps the object
            check = f"{check} and {self._name(value)}.data_ptr() == {value.data_ptr()}"
        self.checks.setdefault(read, (check, label))
        self._follow(value, label, code)

    def _compare(self, read: str, value: object, label: str) -> None:
        """Adds the check that an expression equals a value."""
        if read not in self.checks:
            self.checks[read] = f"{read} == {self._name(value)}", label

    def _name(self, value: object) -> str:
        name = self.names.setdefault(id(value), f"v{len(self.names)}")
        self.namespace[name] = value
        return name


def same(one: object, other: object) -> bool:
    """Returns whether two plain values have the same type and value. NaN equals NaN; 0.0 does not equal -0.0."""
    return type(one) is type(other) and repr(one) == repr(other)


def is_plain(value: object) -> bool:
    """Returns whether a value is a number, a text, None, or a tuple of such values."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return isinstance(value, PLAIN)


def is_torch(code: CodeType) -> bool:
    """Returns whether a function belongs to torch."""
    return code.co_filename.startswith(TORCH)


def texts(values: Iterable[object]) -> Iterator[str]:
    """Yields the texts among values, and those in tuples."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from texts(value)
