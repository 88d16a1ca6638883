"""Saves the state of one environment as a tree of plain values, and restores it.

A tree holds the attributes of the environment and of each of its wrappers (counters, arrays, frame queues,
generators), and the state of engines outside of Python (MuJoCo, ALE). Nothing is pickled: a tree consists of None,
bool, int, float, str, bytes, numpy arrays, tensors, and of dicts, lists and tuples of these. The self-test detects
environments with state that a tree does not hold.
"""

import inspect
import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd

from rlrun.envs.wrappers.atari import StickyALE

Tree = object

PLAIN = (type(None), bool, int, float, str, bytes)
GENERATORS = {name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")}
# attributes that are not state: constructors set them once, and they may differ between machines or installations
CONSTANT = {"_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs", "metadata", "fullpath", "spec", "_cached_spec"}
# a value may replace another one of the same group
KINDS = (
    bool | int | float | np.number | np.bool_, str, bytes, list | tuple | deque | np.ndarray, dict,
    np.random.Generator, random.Random, RunningMeanStd,
)  # fmt: skip
DRAWS = (np.random.Generator, random.Random, gym.Space)  # types that hold random generators
MAX_DEPTH = 16  # deeper nesting is taken for a cycle


class NotSavableError(Exception):
    """A tree cannot hold a value, or it does not fit the environment."""


def layers(env: gym.Env) -> Iterator[gym.Env]:
    """Yields the wrappers, outermost first, and at last the environment inside them."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
    yield env


def save(env: gym.Env) -> dict[str, Tree]:
    """Returns all that determines the next steps: attributes of all layers, and the engine's state as "native"."""
    native = _native(env.unwrapped)
    saved = None
    if native is not None:
        saved = native.save()
    return {"layers": [attributes(layer) for layer in layers(env)], "native": saved}


def save_before_reset(env: gym.Env) -> dict[str, Tree]:
    """Returns a state for `restore`, after which a reset of a new environment begins the same episode.

    It holds all attributes of the wrappers, but only the random generators of the environment itself. Its other
    attributes may refer to objects of the engine (bodies, clients) that do not exist in a new environment.
    """
    *wrappers, core = layers(env)
    saved = [attributes(wrapper) for wrapper in wrappers]
    saved.append(attributes(core, DRAWS))
    return {"layers": saved, "native": None}


def restore(env: gym.Env, tree: dict[str, Any]) -> None:
    """Restores a state in `env`, which was made by the same recipe.

    For a tree from `save`, `env` must have been reset at least once; for a tree from `save_before_reset` it must be
    new. Raises NotSavableError if the tree belongs to other wrappers, another model or engine version.
    """
    chain = list(layers(env))
    if len(chain) != len(tree["layers"]):
        raise NotSavableError(f"{len(tree['layers'])} layers were saved, the environment has {len(chain)}")
    native = _native(env.unwrapped)
    if native and tree["native"] is not None:
        native.restore(tree["native"])
    for layer, saved in zip(chain, tree["layers"], strict=True):
        assign(layer, saved)


def attributes(layer: object, kinds: type | tuple[type, ...] = object) -> dict[str, Tree]:
    """Returns the attributes of one layer that are of these types and that a tree can hold; others are left out."""
    found = {}
    for name, value in vars(layer).items():
        if name not in CONSTANT and isinstance(value, kinds) and not _declares_reports(name, value):
            try:
                found[name] = encode(value)
            except NotSavableError:  # models, windows, functions; the self-test fails if such a value is state
                continue
    return found


def _declares_reports(name: str, value: object) -> bool:
    """Returns whether an attribute declares what steps report (`envs/stepping/reports.py`), which is no state."""
    return name == "reports" and isinstance(value, dict) and all(isinstance(each, gym.Space) for each in value.values())


def assign(layer: object, saved: dict[str, Tree]) -> None:
    """Sets the attributes of a layer to values from `attributes`.

    These may come from an untrusted file. Therefore NotSavableError is raised if a value has another type than the
    current one, if an attribute named like a constructor argument would change, if a value would replace a method, and
    for the names in CONSTANT and those that begin with two underscores.
    """
    here = vars(layer)
    cls: Any = type(layer)
    class_name = type(layer).__name__
    for name, value in saved.items():
        if name in CONSTANT or name.startswith("__"):
            raise NotSavableError(f"{class_name}.{name} is no state, but was saved")
        found = decode(value, here.get(name))
        if is_method(cls, name):
            raise NotSavableError(f"{class_name}.{name} is a method, but was saved as a value")
        if name in here and not _fits(here[name], found):
            raise NotSavableError(f"{class_name}.{name} is {here[name]!r}, but was saved as {found!r:.50}")
        if name in here and name.lstrip("_") in arguments(cls) and _differs(here[name], found):
            raise NotSavableError(f"{class_name} was made with another {name}")
        here[name] = found


@cache
def arguments(layer: type) -> frozenset[str]:
    """Returns the names of the constructor arguments of a class and its bases, which are configuration, not state."""
    names: set[str] = set()
    for cls in layer.__mro__:
        constructor = vars(cls).get("__init__")
        if inspect.isfunction(constructor):
            names.update(inspect.signature(constructor).parameters)
    return frozenset(names)


@cache
def is_method(layer: type, name: str) -> bool:
    """Returns whether a class has a method or property of this name."""
    found = inspect.getattr_static(layer, name, None)
    return inspect.isroutine(found) or isinstance(found, property | staticmethod | classmethod)


def _fits(now: object, saved: object) -> bool:
    """Returns whether a saved value may replace the current one.

    Both must be of the same kind, or one of them is None. An environment or a space is never replaced.
    """
    if isinstance(now, gym.Env | gym.Space):
        return saved is now
    if now is None or saved is None:
        return True
    return any(isinstance(now, kind) and isinstance(saved, kind) for kind in KINDS)


def _differs(now: object, saved: object) -> bool:
    """Returns whether two values differ. Only values of the types in PLAIN are compared; others count as equal."""
    return type(now) in PLAIN and repr(now) != repr(saved)


def encode(value: Any, depth: int = 0) -> Tree:
    """Returns `value` as a tree. Tuples in a tree are always (tag, ...) as in DECODERS. Raises NotSavableError."""
    if type(value) in PLAIN:
        return value
    if depth > MAX_DEPTH:
        raise NotSavableError("nested too deeply")
    if isinstance(value, np.ndarray):
        return _encode_array(value)
    if isinstance(value, np.generic):
        return ("scalar", _encode_array(np.asarray(value)))
    if isinstance(value, np.random.Generator) and type(value.bit_generator).__name__ in GENERATORS:
        return ("generator", value.bit_generator.state)
    if isinstance(value, random.Random):
        version, words, gauss = value.getstate()
        return ("random", [version, np.array(words, np.int64), gauss])
    if isinstance(value, RunningMeanStd):  # statistics of Gymnasium's normalizing wrappers
        return ("moments", [encode(part, depth + 1) for part in (value.mean, value.var, value.count)])
    if isinstance(value, gym.Space):  # only the generators of a space are state
        return ("space", encode(value._np_random), [encode(part, depth + 1) for part in _parts(value)])
    if type(value) in (list, tuple, deque):
        items = [encode(item, depth + 1) for item in value]
        if type(value) is tuple:
            return ("tuple", items)
        if type(value) is deque:
            return ("deque", value.maxlen, items)
        return items
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        return {key: encode(item, depth + 1) for key, item in value.items()}
    raise NotSavableError(type(value).__name__)


def decode(tree: Any, now: object = None) -> Any:
    """Returns the value of a tree.

    now: the current value. If it is a generator or a space it is updated in place, because other objects may share it.
    """
    if isinstance(tree, list):
        return [decode(item) for item in tree]
    if isinstance(tree, dict):
        return {key: decode(item) for key, item in tree.items()}
    if isinstance(tree, np.ndarray):
        return tree.copy()
    if isinstance(tree, tuple):
        kind, *parts = tree
        return DECODERS[kind](now, *parts)
    return tree


def _encode_array(array: np.ndarray) -> Tree:
    if array.dtype.hasobject or array.dtype.names:
        raise NotSavableError(f"array of {array.dtype}")
    if array.dtype.kind in "biuf":
        return array.copy()
    return ("raw", array.dtype.str, list(array.shape), _bytes(array.tobytes()))  # text, dates, complex numbers


def _bytes(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, np.uint8).copy()  # a view of bytes would be read-only


def _decode_generator(now: Any, state: dict[str, Any]) -> np.random.Generator:
    kind = state["bit_generator"]
    if not isinstance(now, np.random.Generator) or type(now.bit_generator).__name__ != kind:
        now = np.random.Generator(GENERATORS[kind]())
    if kind == "MT19937":
        _check_position(state["state"]["pos"], 624)
    elif kind == "Philox":
        _check_position(state["buffer_pos"], 4)
    now.bit_generator.state = state
    return now


def _check_position(position: int, length: int) -> None:
    """Raises NotSavableError if a generator would read beyond its buffer, which NumPy does not check."""
    if not 0 <= position <= length:
        raise NotSavableError(f"the state of a generator has the position {position}, beyond its buffer of {length}")


def _decode_random(now: Any, state: list[Any]) -> random.Random:
    if not isinstance(now, random.Random):
        now = random.Random()
    version, words, gauss = state
    now.setstate((version, tuple(words.tolist()), gauss))
    return now


def _decode_moments(now: object, parts: list[Tree]) -> RunningMeanStd:
    moments = RunningMeanStd()
    moments.mean, moments.var, moments.count = map(decode, parts)
    return moments


def _decode_space(now: object, generator: Tree, parts: list[Tree]) -> gym.Space:
    if not isinstance(now, gym.Space):
        raise NotSavableError("a space was saved that the environment no longer has")
    now._np_random = decode(generator, now._np_random)
    for part, tree in zip(_parts(now), parts, strict=True):
        decode(tree, part)
    return now


DECODERS: dict[str, Callable[..., Any]] = {
    "scalar": lambda now, array: decode(array)[()],
    "raw": lambda now, dtype, shape, raw: np.frombuffer(raw.tobytes(), dtype).reshape(shape).copy(),
    "tuple": lambda now, items: tuple(decode(item) for item in items),
    "deque": lambda now, maxlen, items: deque((decode(item) for item in items), maxlen),
    "generator": _decode_generator,
    "random": _decode_random,
    "moments": _decode_moments,
    "space": _decode_space,
}


def _parts(space: gym.Space) -> list[gym.Space]:
    parts = getattr(space, "spaces", ())
    if isinstance(parts, dict):
        parts = parts.values()
    return list(parts)


class MujocoState:
    """Saves MuJoCo's integration state and all arrays of MjData, as rewards may use arrays from the previous step.

    Only arrays of floats are restored. Others hold indices and pointers that MuJoCo follows without a check, and the
    tree may come from an untrusted file. A step computes the indices anew.
    """

    def __init__(self, core: gym.Env):
        import mujoco

        self.engine, self.model, self.data = mujoco, core.model, core.data  # type: ignore[attr-defined]
        self.spec = mujoco.mjtState.mjSTATE_INTEGRATION
        blank = mujoco.MjData(self.model)  # arrays that are empty here lie in MuJoCo's arena; a step recomputes them
        self.names = []
        for name in dir(blank):
            if name.startswith("_"):
                continue
            field = getattr(blank, name)
            if isinstance(field, np.ndarray) and field.size:
                self.names.append(name)

    @staticmethod
    def fits(core: gym.Env) -> bool:
        kinds = type(getattr(core, "model", None)).__name__, type(getattr(core, "data", None)).__name__
        return kinds == ("MjModel", "MjData")

    def save(self) -> Tree:
        state = np.empty(self.engine.mj_stateSize(self.model, self.spec))
        self.engine.mj_getState(self.model, self.data, state, self.spec)
        arrays = b"".join(getattr(self.data, name).tobytes() for name in self.names)
        return {"mujoco": self.engine.__version__, "state": state, "arrays": _bytes(arrays)}

    def restore(self, tree: Any) -> None:
        arrays = [getattr(self.data, name) for name in self.names]
        if tree["mujoco"] != self.engine.__version__ or tree["arrays"].size != sum(array.nbytes for array in arrays):
            raise NotSavableError(
                f"saved by MuJoCo {tree['mujoco']}, but this is {self.engine.__version__} or another model"
            )
        self.engine.mj_setState(self.model, self.data, tree["state"], self.spec)
        raw, start = tree["arrays"].tobytes(), 0
        for array in arrays:
            if array.dtype.kind == "f":
                array[...] = np.frombuffer(raw, array.dtype, array.size, start).reshape(array.shape)
            start += array.nbytes


class AtariState:
    """Saves the serialised state of the Arcade Learning Environment, and the action that StickyALE may repeat."""

    def __init__(self, core: gym.Env):
        self.ale: StickyALE = core.ale  # type: ignore[attr-defined]

    @staticmethod
    def fits(core: gym.Env) -> bool:
        return isinstance(getattr(core, "ale", None), StickyALE)

    def save(self) -> Tree:
        state = _bytes(self.ale.cloneState(include_rng=True).serialize())
        return {"ale": state, "action": self.ale.action, "strength": self.ale.strength}

    def restore(self, tree: Tree) -> None:
        from ale_py import ALEState

        if not isinstance(tree, dict):
            raise NotSavableError("saved without the action that sticky actions may repeat")
        self.ale.restoreState(ALEState(tree["ale"].tobytes()))
        self.ale.action, self.ale.strength = tree["action"], tree["strength"]


class OwnState:
    """For environments with the methods `get_extra_state() -> tree` and `set_extra_state(tree)`."""

    def __init__(self, core: gym.Env):
        self.save, self.restore = core.get_extra_state, core.set_extra_state  # type: ignore[attr-defined]

    @staticmethod
    def fits(core: gym.Env) -> bool:
        return hasattr(core, "get_extra_state") and hasattr(core, "set_extra_state")


def _native(core: gym.Env) -> OwnState | MujocoState | AtariState | None:
    """Returns an object that saves the engine of this environment, or None if only attributes are to be saved."""
    for engine in (OwnState, MujocoState, AtariState):
        if engine.fits(core):
            return engine(core)
    return None
