"""Describes an exported policy: names, shapes and dtypes of its tensors, spaces, origin, versions."""

from importlib.metadata import version

import numpy as np
from gymnasium import Space, spaces

from rlrun import __version__
from rlrun.export.formats import Arrays, Format
from rlrun.run.trained import Trained


def described(trained: Trained, format: Format, inputs: Arrays, outputs: Arrays) -> dict[str, object]:
    """Returns the metadata of an exported policy. inputs, outputs: the tensors of any call."""
    config, snapshot = trained.config, trained.snapshot
    return {
        "inputs": tensors(inputs),
        "outputs": tensors(outputs),
        "observation_space": space(trained.env.spec.obs),
        "action_space": space(trained.env.spec.shown_action),
        "algo": config.algo["name"],
        "env": config.env.id,
        "run": config.name,
        "seed": config.seed,
        "snapshot": snapshot.name,
        "step": snapshot.step,
        "digest": snapshot.digest,
        "versions": {"rlrun": __version__} | {package: version(package) for package in format.packages},
    }


def tensors(arrays: Arrays) -> dict[str, object]:
    """Returns the shape and dtype of every array; the first dimension may have any size."""
    return {name: {"shape": ["batch", *array.shape[1:]], "dtype": str(array.dtype)} for name, array in arrays.items()}


def space(described: Space) -> dict[str, object]:
    """Returns a space as JSON values."""
    kind: dict[str, object] = {"type": type(described).__name__}
    match described:
        case spaces.Dict():
            return {"type": "Dict", "entries": {key: space(part) for key, part in described.items()}}
        case spaces.Tuple():
            return {"type": "Tuple", "entries": [space(part) for part in described]}
        case spaces.Box():
            kind |= {"low": bound(described.low), "high": bound(described.high)}
        case spaces.Discrete():
            kind |= {"n": int(described.n), "start": int(described.start)}
        case spaces.MultiDiscrete():
            kind |= {"nvec": described.nvec.tolist(), "start": described.start.tolist()}
    return kind | {"shape": list(described.shape or ()), "dtype": str(described.dtype)}


def bound(limits: np.ndarray) -> object:
    """Returns the bounds of a Box: one number if all are equal, else nested lists; None stands for no bound."""
    finite = limits.astype(object)
    finite[~np.isfinite(limits.astype(np.float64))] = None
    if limits.size and (limits == limits.flat[0]).all():
        return finite.flat[0]
    return finite.tolist()
