"""The action that an environment really took, as the entry of its infos that `env.executed_action` names."""

from collections.abc import Sequence

import gymnasium as gym
import numpy as np

from rlrun.envs.stepping.actions import Actions, leaves, nested, values
from rlrun.envs.stepping.returned import ReturnedError
from rlrun.errors import nearest
from rlrun.types import Info


def read(name: str, space: gym.Space, info: Info) -> object:
    """Returns the action info[name] with the dtypes of the action space of the environment.

    Raises ReturnedError if the entry is missing, or is no action of the space.
    """
    if name not in info:
        raise ReturnedError(f"env.executed_action: its infos have no {name!r}{nearest(name, info)}")
    action = info[name]
    try:
        given = [*map(np.asarray, values(space, action))]
        parts = [part.astype(leaf.dtype) for (_, leaf), part in zip(leaves(space), given, strict=True)]
    except (TypeError, ValueError, KeyError):
        raise _outside(name, space, action) from None
    for (_, leaf), part, rounded in zip(leaves(space), given, parts, strict=True):
        is_whole = rounded.dtype.kind != "f"
        if not leaf.contains(rounded) or (is_whole and (rounded != part).any()):
            raise _outside(name, space, action)
    return nested(space, iter(parts))


def _outside(name: str, space: gym.Space, action: object) -> ReturnedError:
    return ReturnedError(f"env.executed_action: info[{name!r}] is {action}, which is not in {space}")


def replaced(actions: np.ndarray, found: Sequence[object] | None, conversion: Actions) -> np.ndarray:
    """Returns actions of the agent [num_envs, ...] with those that the environments took in their place.

    found: an action for each environment in its own units, as `read` returns it; None keeps the agent's, of one or all.
    """
    if found is None:
        return actions
    rows = [row for row, action in enumerate(found) if action is not None]
    by_row = [values(conversion.native, found[row]) for row in rows]
    native = nested(conversion.native, (np.stack(parts) for parts in zip(*by_row, strict=True)))
    actions = actions.copy()
    actions[rows] = conversion.clip(conversion.from_native(native))
    return actions
