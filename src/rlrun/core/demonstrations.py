"""Demonstrations on disk: data sets of episodes in Minari's format, as `rlrun eval RUN record=demos-v0` writes them."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.buffers.demos import Demo
from rlrun.envs.vector import VectorEnv
from rlrun.errors import ConfigError

ABOUT = Path("data") / "metadata.json"


def holds_demonstrations(folder: Path) -> bool:
    """Whether a folder is a data set, and not one that is still written."""
    return not folder.name.startswith(".") and (folder / ABOUT).is_file()


def read(key: str, folder: Path, env: VectorEnv) -> list[Demo]:
    """All episodes of a data set, in the units of `env`. Raises ConfigError, about the key that named it, where it was
    recorded in another."""
    named = f"{key}={folder}"
    if not holds_demonstrations(folder):
        raise ConfigError(f"{named}: holds no data set of episodes, as rlrun eval RUN record=demos-v0 writes it")
    require_minari(folder)
    recorded = json.loads((folder / ABOUT).read_text()).get("rlrun_env")  # data sets from elsewhere do not say
    if recorded not in (None, env.origin):
        raise ConfigError(f"{named}: was recorded in {recorded}, which is not this environment, {env.origin}")
    from minari import MinariDataset

    found = []
    try:
        for episode in MinariDataset(folder / "data").iterate_episodes():
            reward = torch.from_numpy(np.asarray(episode.rewards, np.float32)).to(env.device)
            if reward.shape[1:] != env.reward_shape:
                raise ValueError(f"rewards of shape {tuple(reward.shape[1:])}, not {env.reward_shape}")
            obs = tensors(episode.observations, env.spec.obs, env.device)
            action = torch.from_numpy(env.actions.from_native(np.asarray(episode.actions))).to(env.device)
            worth = {"terminated": bool(episode.terminations[-1]), "worth": float(reward.sum())}
            found.append({"obs": obs, "action": action, "reward": reward, **worth})
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{named}: does not fit this environment ({error})") from None
    except OSError as error:
        raise ConfigError(f"{named}: cannot be read ({' '.join(str(error).split())})") from None
    return found


def write(folder: Path, demos: list[Demo], env: VectorEnv) -> None:
    """These demonstrations as a data set, in place of what is there."""
    require_minari(folder)
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
            "observations": arrays(demo["obs"]), "actions": [*env.actions.to_native(demo["action"].cpu().numpy())],
            "rewards": arrays(demo["reward"]), "terminations": [*before, demo["terminated"]],
            "truncations": [*before, not demo["terminated"]], "infos": {}, "seed": number,
        }  # fmt: skip
        storage.update_episodes([EpisodeBuffer(**columns)])
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def require_minari(folder: Path) -> None:
    if importlib.util.find_spec("minari") is None or importlib.util.find_spec("h5py") is None:
        raise ConfigError(f"{folder}: needs a package; pip install rlrun[data]")


def tensors(obs: Any, space: Space, device: torch.device) -> Any:
    """[rows, ...], as environments give them. ValueError where they are not of the space."""
    if isinstance(space, spaces.Dict):
        return {key: tensors(obs[key], part, device) for key, part in space.items()}
    rows = np.asarray(obs)
    if rows.shape[1:] != space.shape:
        raise ValueError(f"observations of shape {rows.shape[1:]}, not {space.shape}")
    return torch.from_numpy(rows.astype(space.dtype)).to(device)


def arrays(obs: Any) -> Any:
    """A list of rows, in every entry of a dict."""
    if isinstance(obs, Tensor):
        return [*obs.cpu().numpy()]
    return {key: arrays(part) for key, part in obs.items()}
