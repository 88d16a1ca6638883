"""What environments report in every step besides observation and reward, as their attribute `reports` declares it."""

from collections.abc import Iterator, Mapping

import gymnasium as gym
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from rlrun.envs.saving.state import layers
from rlrun.envs.stepping.returned import NUMBERS, WHOLE, ReturnedError, check_rows
from rlrun.errors import ConfigError
from rlrun.types import MetaBatch, OwnBatch, PopulationBatch, RolloutBatch, Transition

Reports = Mapping[str, Space]  # name of an entry of the infos of `step` -> space of its value
KINDS = (Transition, RolloutBatch, PopulationBatch, MetaBatch, OwnBatch)
TAKEN = {key for kind in KINDS for key in kind.__annotations__} | {"following", "executed", "drawn_reward"}
ABSENT = Ellipsis  # stands for the value of a report that is not in the infos


def declared(env: gym.Env | VectorEnv) -> Reports:
    """Returns what an environment and its wrappers report, sorted by name.

    Raises ConfigError if two of them report one name, if a name has a dot or is that of another entry of steps or
    batches, or if a space is neither a Box nor Discrete.
    """
    found: dict[str, Space] = {}
    for layer in _layers(env):
        # not vars(layer), which makes Python create a dict for its attributes: they are slower from then on
        own = getattr(layer, "reports", None)
        if not isinstance(own, Mapping) or not all(isinstance(space, Space) for space in own.values()):
            continue  # an attribute of this name with another meaning
        for name, space in own.items():
            if name in found:
                raise ConfigError(f"reports: the environment or its wrappers report {name!r} twice")
            if name in TAKEN or "." in name:
                why = "has a dot" if "." in name else "is taken"
                raise ConfigError(f"reports: {name!r} {why}; give the report another name")
            if not isinstance(space, spaces.Box | spaces.Discrete):
                raise ConfigError(f"reports: {name!r} must be a Box or Discrete, not {type(space).__name__}")
            found[name] = space
    return dict(sorted(found.items()))


def _layers(env: gym.Env | VectorEnv) -> Iterator[gym.Env | VectorEnv]:
    """Yields the wrappers, outermost first, and at last the environment inside them."""
    while isinstance(env, VectorWrapper):
        yield env
        env = env.env
    if isinstance(env, gym.Env):
        yield from layers(env)
    else:
        yield env


def batch(reports: Reports, values: object, num_envs: int, masked: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Returns the reported values of one step, [num_envs, ...]; floats as float32.

    values: name -> one value for each environment, as a list or as an array. In a list, None stands for an environment
    that failed in this step. That row, and rows that are `masked`, get 0. Raises ReturnedError for a value that is
    absent, or that cannot be stored with the shape and dtype of its space. A value of a Box may be outside its bounds,
    as in observations.
    """
    if not isinstance(values, Mapping):
        raise ReturnedError(f"infos['reports'] is of type {type(values).__name__}, but must be a dict")
    found = {}
    for name, space in reports.items():
        blank = np.zeros(space.shape or (), space.dtype)
        present = np.ones(num_envs, bool) if masked is None else ~masked
        rows = values.get(name, [ABSENT])
        if not isinstance(rows, np.ndarray):
            if any(row is ABSENT for row in rows):
                raise ReturnedError(f"its infos have no {name!r}, which it declares in `reports`")
            present &= [row is not None for row in rows]
            rows = [blank if row is None else row for row in rows]
        try:
            array = np.asarray(rows)
        except ValueError as error:
            raise ReturnedError(f"info[{name!r}] has several shapes, but its `reports` declare {space}") from error
        is_whole = blank.dtype.kind in WHOLE
        check_rows(f"info[{name!r}]", array, (num_envs, *blank.shape), WHOLE if is_whole else NUMBERS)
        with np.errstate(over="ignore"):  # a number that is too large becomes infinite, and is refused below
            stored = array.astype(blank.dtype if is_whole else np.float32)
        fits = stored == array if is_whole else np.isfinite(stored)
        if isinstance(space, spaces.Discrete):
            fits &= (array >= space.start) & (array - space.start < space.n)
        wrong = ~fits
        wrong[~present] = False
        if wrong.any():
            raise ReturnedError(f"info[{name!r}] is {array[wrong][0]}, but its `reports` declare {space}")
        stored[~present] = 0
        found[name] = stored
    return found
