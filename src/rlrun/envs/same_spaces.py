"""Describes the spaces of environments as text, to compare those of a training with those of an evaluation."""

import numpy as np
from gymnasium import Space, spaces

from rlrun.envs.stepping.obs_adapter import as_tensors
from rlrun.errors import printable
from rlrun.types import Spec


def described(spec: Spec) -> dict[str, str]:
    """Returns the observations and actions of an environment, as text: what a policy for it depends on."""
    return {"observations": observations(spec.obs), "actions": actions(spec.shown_action)}


def difference(trained: object, here: dict[str, str]) -> str | None:
    """Returns how the first space differs, such as "actions are Discrete(2), but Discrete(3) in training", or None.

    trained: as `described`, from an untrusted file; None if it is not known.
    """
    if not isinstance(trained, dict):
        return None
    for what, text in here.items():
        other = trained.get(what, text)
        if other != text:
            return printable(f"{what} are {text}, but {other} in training")
    return None


def observations(space: Space) -> str:
    """Returns the shapes and dtypes of observations after conversion to tensors, as text. Bounds are left out."""
    return _form(as_tensors(space))


def _form(space: Space) -> str:
    if isinstance(space, spaces.Dict):
        return str({key: _form(part) for key, part in space.items()})
    if isinstance(space, spaces.Box):
        return f"Box{space.shape} of {space.dtype}"
    return str(space)


def actions(space: Space) -> str:
    """Returns an action space as text. Bounds have six digits, because simulators round them to single precision."""
    match space:
        case spaces.Dict():
            return str({key: actions(part) for key, part in space.items()})
        case spaces.Tuple():
            return f"({', '.join(actions(part) for part in space)})"
        case spaces.Box():
            kind = "float" if space.dtype.kind == "f" else space.dtype
            return f"Box({_bounds(space.low)}, {_bounds(space.high)}, {space.shape}, {kind})"
    return str(space)


def _bounds(values: np.ndarray) -> str:
    shown = [f"{value:g}" for value in values.ravel().tolist()]
    if len(set(shown)) == 1:
        return shown[0]
    return f"[{', '.join(shown)}]"
