"""Reads and writes demonstrations: data sets of episodes in Minari's format.

`rlrun eval RUN record=demos-v0` records such a data set.
"""

import importlib.util
import os
import shutil
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.buffers.demos import Demo
from rlrun.datasets import folders
from rlrun.datasets.folders import ABOUT
from rlrun.envs.origin import difference, is_elsewhere
from rlrun.envs.stepping.actions import values
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError

TOLERANCE = 1e-3  # by how much a recorded action may exceed the agent's bounds, because of rounding

DataEnv = Literal["same", "any"]
"""Whether the environment of a data set must have the same constructor arguments as that of the run."""


def holds_demonstrations(folder: Path) -> bool:
    """Returns whether a folder is a complete data set. While one is being written, its name starts with a dot."""
    return not folder.name.startswith(".") and (folder / ABOUT).is_file()


def read(key: str, place: str | Path, env: VectorEnv, data_env: DataEnv = "same") -> list[Demo]:
    """Returns all episodes of a data set, with actions in the agent's units.

    place: a folder, or the name of a data set in Minari's folder. key: the config key that names it, for messages.
    data_env: with "any", the data set may have been recorded with other constructor arguments. Raises ConfigError if
    the data set cannot be read, does not fit `env`, or was recorded in another environment.
    """
    named = f"{key}={place}"
    folder = folders.located(key, place)
    require_minari(folder)
    recorded = folders.about(named, folder).get("rlrun_env")  # absent from data sets that rlrun did not record
    if recorded is not None:
        check_origin(key, named, recorded, env, data_env)
    from minari import MinariDataset

    found: list[Demo] = []
    try:
        with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():  # infinity is refused below
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            for episode in MinariDataset(folder / "data").iterate_episodes():
                found.append(demonstration(episode, env))
    except OSError as error:
        raise ConfigError(f"{named}: cannot be read ({line(error)})") from None
    except MemoryError:
        raise ConfigError(f"{named}: needs more memory than is available") from None
    except Exception as error:  # an untrusted file may hold anything
        raise ConfigError(f"{named}: episode {len(found)} does not fit this environment ({line(error)})") from None
    return found


def check_origin(key: str, named: str, recorded: Any, env: VectorEnv, data_env: DataEnv) -> None:
    """Raises ConfigError if a data set was recorded in another environment.

    If `data_env` is "same", it must also have been recorded with the same constructor arguments.
    """
    if is_elsewhere(recorded, env.origin):
        raise ConfigError(f"{named}: was recorded in {recorded}, which is not this environment, {env.origin}")
    differs = difference(recorded, env.origin)
    if differs and data_env == "same":
        accept = f"{key.rpartition('.')[0]}.data_env=any"
        raise ConfigError(f"{named}: was recorded with {differs}; {accept} accepts it nevertheless")


def demonstration(episode: Any, env: VectorEnv) -> Demo:
    """Returns one recorded episode as a Demo. Raises ValueError if `env` cannot have produced it."""
    reward = np.asarray(episode.rewards, np.float32)
    steps = len(reward)
    if steps == 0:
        raise ValueError("it has no steps")
    if reward.shape[1:] != env.reward_shape:
        raise ValueError(f"rewards of shape {reward.shape[1:]}, not {env.reward_shape}")
    columns = [("terminations", episode.terminations), ("truncations", episode.truncations)]
    columns += [("actions", part) for part in values(env.actions.native, episode.actions)]
    for column, rows in columns:
        if len(rows) != steps:
            raise ValueError(f"{len(rows)} {column} for {steps} rewards")
    check_finite("rewards", reward)
    return {
        "obs": tensors(episode.observations, env.spec.obs, steps + 1, env.device),
        "action": torch.from_numpy(executed(episode.actions, env)).to(env.device),
        "reward": torch.from_numpy(reward).to(env.device),
        "terminated": bool(episode.terminations[-1]),
        "worth": float(reward.sum()),
    }


def check_replaceable(named: str, folder: Path) -> None:
    """Raises ConfigError if `folder` exists and is not a data set that a run saved.

    A data set from `rlrun eval` is not replaceable either.
    """
    if not os.path.lexists(folder):
        return
    about: dict[str, object] = {}
    if os.path.lexists(folder / ABOUT):
        about = folders.about(named, folder)
    if "rlrun_env" not in about or "algorithm_name" in about or folder.is_symlink():  # rlrun eval sets algorithm_name
        raise ConfigError(f"{named}: exists already and was not saved by a run; name a new folder")


def write(folder: Path, demos: list[Demo], env: VectorEnv) -> None:
    """Saves demonstrations as a data set, and replaces one that a run saved there.

    Raises ConfigError if `folder` holds anything else.
    """
    require_minari(folder)
    check_replaceable(str(folder), folder)
    from minari import __version__
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / "data").mkdir(parents=True)
    storage = MinariStorage.new(
        (fresh / "data").resolve(), env.spec.obs, env.actions.native, data_format="hdf5", jpeg_encoding=False
    )
    storage.update_metadata({"rlrun_env": env.origin, "dataset_id": folder.name, "minari_version": __version__})
    for number, demo in enumerate(demos):
        before = [False] * (len(demo["reward"]) - 1)
        columns = {
            "observations": arrays(demo["obs"]), "actions": env.actions.to_native(demo["action"].cpu().numpy()),
            "rewards": arrays(demo["reward"]), "terminations": [*before, demo["terminated"]],
            "truncations": [*before, not demo["terminated"]], "infos": {}, "seed": number,
        }  # fmt: skip
        storage.update_episodes([EpisodeBuffer(**columns)])
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def require_minari(folder: Path) -> None:
    """Raises ConfigError if the packages that read data sets are not installed."""
    if importlib.util.find_spec("minari") is None or importlib.util.find_spec("h5py") is None:
        raise ConfigError(f"{folder}: needs a package; pip install 'rlrun[data]'")


def tensors(obs: Any, space: Space, count: int, device: torch.device) -> Any:
    """Returns recorded observations as tensors [count, ...]. Raises ValueError if they do not fit the space."""
    if isinstance(space, spaces.Dict):
        return {key: tensors(obs[key], part, count, device) for key, part in space.items()}
    rows = np.asarray(obs)
    if rows.shape[1:] != space.shape:
        raise ValueError(f"observations of shape {rows.shape[1:]}, not {space.shape}")
    if len(rows) != count:
        raise ValueError(f"{len(rows)} observations for {count - 1} rewards")
    check_finite("observations", rows)
    low, high = whole_bounds(space)
    if low is not None and ((rows < low) | (rows > high) | (rows != np.rint(rows))).any():
        raise ValueError(f"observations that are not in {space}")
    with np.errstate(over="ignore"):
        rows = rows.astype(space.dtype)
    check_finite("observations", rows)  # again, because large float64 values become infinite in float32
    return torch.from_numpy(rows).to(device)


def executed(actions: object, env: VectorEnv) -> np.ndarray:
    """Returns recorded actions in the agent's units, clipped to the agent's bounds.

    Raises ValueError for actions that are not in the space, or exceed the bounds by more than TOLERANCE.
    """
    for part in values(env.actions.native, actions):
        check_finite("actions", np.asarray(part))
    found = env.actions.from_native(actions)
    allowed = env.actions.clip(found)
    if found.dtype.kind == "f" and (np.abs(found - allowed) > TOLERANCE).any():
        raise ValueError(f"actions that are not in {env.actions.native}")
    return allowed


def check_finite(what: str, values: np.ndarray) -> None:
    """Raises ValueError for NaN, infinity, and values that are not numbers."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{what} that are not numbers")
    if not np.isfinite(values).all():
        raise ValueError(f"{what} that are not finite")


def whole_bounds(space: Space) -> tuple[object, object]:
    """Returns the lowest and the highest values of a space of integers, (None, None) for any other space."""
    match space:
        case spaces.Discrete():
            return space.start, space.start + space.n - 1
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            return 0, 1
        case spaces.Box() if space.dtype.kind in "iu":
            limits = np.iinfo(space.dtype)
            return limits.min, limits.max
    return None, None


def line(error: Exception) -> str:
    """Returns the text of an exception in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def arrays(obs: Any) -> object:
    """Returns a tensor as a list of its rows, and a dict of tensors as a dict of such lists."""
    if isinstance(obs, Tensor):
        return [*obs.cpu().numpy()]
    return {key: arrays(part) for key, part in obs.items()}
