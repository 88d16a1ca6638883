"""Reads what an environment returns in a step. A value that cannot be stored as it is raises a ReturnedError."""

import math
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

BOOLS = "b"  # kinds of dtypes
WHOLE = "biu"  # bool, signed, unsigned
NUMBERS = "biuf"
SUCCESS = ("is_success", "success")  # names of infos that report whether a step was a success
NUMBER = (float, int, np.floating, np.integer, np.bool_)  # a tuple is checked faster than a union
INTEGER = (int, np.integer)


class ReturnedError(ValueError):
    """An environment returned a value of a wrong form. The message is one line."""


def check_observation(space: Space, obs: object, keys: tuple[str, ...] = ()) -> None:
    """Raises ReturnedError if an observation cannot be stored with the shape and dtype of its space.

    A space of whole numbers takes no floats, and no number beyond its dtype. A space of floats takes all numbers, which
    may be rounded. A discrete value must also lie in its space. A value of a Box may be outside its bounds, which many
    environments only estimate. keys: those that lead to this entry in nested Dict spaces.
    """
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            check_observation(part, _entry(obs, key, keys), (*keys, key))
        return
    if type(obs) is np.ndarray and obs.dtype == space.dtype and obs.shape == space.shape:
        if isinstance(space, spaces.Box) or np.count_nonzero(_inside(space, obs)) == obs.size:
            return
    elif isinstance(obs, INTEGER) and isinstance(space, spaces.Discrete) and _inside(space, obs):
        return
    _check_array(space, np.asarray(obs), keys)


def check_stored(space: Space, obs: object, keys: tuple[str, ...] = ()) -> None:
    """As `check_observation`, for an observation that was stored as agents see it: any Box may then hold floats."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            check_stored(part, _entry(obs, key, keys), (*keys, key))
    elif isinstance(space, spaces.Box):
        check_rows(".".join(("observation", *keys)), obs, space.shape, NUMBERS)
    else:
        check_observation(space, obs, keys)


def batched(space: Space, num_envs: int) -> Space:
    """Returns the space of the observations of a vector env, with the values that each environment may return."""
    match space:
        case spaces.Dict():
            return spaces.Dict({key: batched(part, num_envs) for key, part in space.items()})
        case spaces.MultiBinary():
            return spaces.MultiBinary((num_envs, *space.shape))
        case spaces.MultiDiscrete():
            counts, starts = np.stack([space.nvec] * num_envs), np.stack([space.start] * num_envs)
            return spaces.MultiDiscrete(counts, dtype=space.dtype.type, start=starts)
    return batch_space(space, num_envs)


def check_rows(name: str, values: object, shape: tuple[int, ...], kinds: str) -> None:
    """Raises ReturnedError if `values` is not an array of this shape, with a dtype of these kinds."""
    if not isinstance(values, np.ndarray):
        raise ReturnedError(f"{name} is a {type(values).__name__}, but must be an array of shape {shape}")
    if values.shape != shape or values.dtype.kind not in kinds:
        wanted = "bool" if kinds == BOOLS else "numbers"
        raise ReturnedError(f"{name} is {values.dtype} {values.shape}, but must be {wanted} {shape}")


def reward(value: Any, shape: tuple[int, ...]) -> float | np.ndarray:
    """Returns a reward as a number, or as an array of this shape for reward vectors. Raises ReturnedError."""
    if isinstance(value, NUMBER) and not shape:
        return float(value)
    try:
        found = np.shape(value)
    except ValueError:  # of a list of lists with different lengths
        raise ReturnedError(f"its reward is {value!r} instead of being a number") from None
    if math.prod(found) != math.prod(shape):
        declared = "it has no reward_space"
        if shape:
            declared = f"its reward_space declares {shape}"
        raise ReturnedError(f"its reward has shape {tuple(found)}, but {declared}")
    if not shape:
        return number("its reward", value)
    array = np.asarray(value)
    if array.dtype.kind not in NUMBERS:
        raise ReturnedError(f"its reward is {value!r} instead of numbers of shape {shape}")
    return array.reshape(shape)


def number(name: str, value: Any) -> float:
    """Returns a number, or the only element of an array, tensor or list, as a float. Raises ReturnedError."""
    if isinstance(value, NUMBER):
        return float(value)
    one = value
    if math.prod(np.shape(one)) == 1:
        while isinstance(one, list | tuple):
            one = one[0]
        if hasattr(one, "item"):
            one = one.item()
    try:
        if not isinstance(one, str | bytes):
            return float(one)
    except TypeError:
        pass
    raise ReturnedError(f"{name} {_shown(value)} instead of being a number")


def flag(name: str, value: object) -> bool:
    """Returns a bool, also given as 0 or 1 or as the only element of an array. Raises ReturnedError."""
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    found = number(name, value)
    if found not in (0.0, 1.0):
        raise ReturnedError(f"{name} {_shown(value)} instead of being True or False")
    return found == 1.0


def fraction(name: str, value: object) -> float:
    """Returns a number from 0 to 1; a bool is 0 or 1. Raises ReturnedError."""
    found = number(name, value)
    if not 0.0 <= found <= 1.0:
        raise ReturnedError(f"{name} {_shown(value)} instead of being True, False or a fraction")
    return found


def _shown(value: Any) -> str:
    """Returns "is <value>", or "has shape <shape>" for a list, an array or a tensor."""
    shape = tuple(np.shape(value))
    if shape:
        return f"has shape {shape}"
    return f"is {value!r}"


def _entry(obs: Any, key: str, keys: tuple[str, ...]) -> object:
    try:
        return obs[key]
    except (KeyError, IndexError, TypeError):
        raise ReturnedError(f"{_name(keys)} has no entry {key!r}, which its space declares") from None


def _inside(space: Any, values: Any) -> Any:
    """Returns which values of an observation lie in a space that is not a Box."""
    if isinstance(space, spaces.MultiBinary):
        return (values & 1) == values
    count = space.n if isinstance(space, spaces.Discrete) else space.nvec
    return (values >= space.start) & (values - space.start < count)


def _check_array(space: Space, values: np.ndarray, keys: tuple[str, ...]) -> None:
    """Does the work of `check_observation` for one entry, whatever its dtype."""
    dtype = np.dtype(space.dtype)
    kinds = WHOLE
    if dtype.kind == "f":
        kinds = NUMBERS
    if values.shape != space.shape or values.dtype.kind not in kinds:
        raise ReturnedError(
            f"{_name(keys)} is {values.dtype} {values.shape}, but its space declares {space.dtype} {space.shape}"
        )
    if dtype.kind == "f":
        return
    stored = values.astype(dtype)
    fits = stored == values
    if not isinstance(space, spaces.Box):
        fits = fits & _inside(space, stored)
    if fits.all():
        return
    index = tuple(np.argwhere(~fits)[0].tolist())
    raise ReturnedError(f"{_name((*keys, *index))} is {values[index]}, but its {_allowed(space, index)}")


def _allowed(space: Space, index: tuple[int, ...]) -> str:
    """Returns the values that a space allows at an index, as text."""
    lowest, highest = 0, 1
    if isinstance(space, spaces.Discrete):
        lowest, highest = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        lowest = space.start[index]
        highest = lowest + space.nvec[index] - 1
    elif isinstance(space, spaces.Box) and space.dtype.kind in "iu":
        lowest, highest = np.iinfo(space.dtype).min, np.iinfo(space.dtype).max
    return f"{type(space).__name__} of {space.dtype} has whole numbers from {lowest} to {highest}"


def _name(keys: tuple[object, ...]) -> str:
    """Returns the name of an entry of an observation: "its observation['camera'][0]"."""
    return "its observation" + "".join(f"[{key!r}]" for key in keys)
