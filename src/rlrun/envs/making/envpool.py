"""Adapts EnvPool (arXiv 2206.10558), which steps environments written in C++ in threads of its own; extra `envpool`.

Its tasks have Gymnasium's ids and mostly Gymnasium's rules, but other random numbers. It differs from single
environments in these points:

- Its constructor takes the seeds, so a reset with seeds makes a new pool.
- The step after the end of an episode only resets (`autoreset.NextStep`).
- Its state cannot be saved, so a resumed run begins new episodes.
- An episode that terminates in the last step before the time limit is reported as truncated.
- It preprocesses Atari frames itself, in grey and with a fixed number of frames per step. Its no-ops follow a lost life
  too, and it presses FIRE for one frame.
"""

import math
import warnings
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVectorEnv

from rlrun.envs.stepping.autoreset import Arrays
from rlrun.envs.wrappers.wrapper import CONTINUES
from rlrun.errors import ConfigError
from rlrun.types import Info

PREPARED = {"atari", "frame_stack"}  # wrappers that EnvPool applies itself
FRAMES = {"frameskip", "obs_type"}  # arguments of Gymnasium's Atari games that only the wrapper `atari` needs


class EnvPool(GymVectorEnv):
    """A vector env of EnvPool. `id` is that of Gymnasium; its namespace is ignored, as in `ALE/Pong-v5`.

    Returned arrays are memory of EnvPool, which the next step may overwrite.
    """

    def __init__(self, id: str, num_envs: int, **arguments: object):
        try:
            import envpool
        except ImportError as error:
            raise ConfigError("env.backend=envpool: EnvPool is not installed; pip install 'rlrun[envpool]'") from error
        name = id.rpartition("/")[2]
        if name not in envpool.list_all_envs():
            raise ConfigError(f"env.backend=envpool: EnvPool has no {name}")
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = num_envs
        self.episodic_life = arguments.get("episodic_life", False)  # whether a lost life ends an episode
        self.make = partial(envpool.make_gymnasium, name, num_envs=num_envs, **arguments)
        self._begin([0] * num_envs)

    def _begin(self, seeds: list[int]) -> None:
        self.pool: Any = self.make(seed=seeds)
        with warnings.catch_warnings(action="ignore"):  # each new pool warns that bounds are rounded
            self.single_observation_space = self.pool.observation_space
            self.single_action_space = self.pool.action_space
        self.continues = np.zeros(self.num_envs, bool)  # whether the last step ended an episode but not the game

    def reset(self, *, seed: Any = None, options: dict[str, object] | None = None) -> tuple[object, Info]:
        """Resets all environments. seed: a list with one seed per environment, or None."""
        if seed is not None:
            self._begin(list(seed))
        self.continues = np.zeros(self.num_envs, bool)
        return self.pool.reset()[0], {}

    def step(self, actions: np.ndarray) -> tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, Info]:
        obs, reward, terminated, truncated, infos = self.pool.step(actions)
        if self.episodic_life:
            resetting = self.continues
            self.continues = terminated & ~truncated & (infos["terminated"] == 0)  # infos report the end of the game
            infos[CONTINUES] = self.continues | resetting
        return obs, reward, terminated, truncated, infos

    def close_extras(self, **_: object) -> None:
        self.pool.close()


def preprocessing(wrappers: dict[str, dict[str, Any]], limit: int | None) -> dict[str, object]:
    """Returns the wrappers `atari` and `frame_stack` as arguments of EnvPool; {} unless both are given.

    limit: time limit in frames, which EnvPool counts in steps. Raises ConfigError for settings that EnvPool lacks.
    """
    if not wrappers.keys() >= PREPARED:
        return {}
    atari, frames = wrappers["atari"], wrappers["frame_stack"]
    if frames.keys() > {"stack"}:
        raise ConfigError("env.wrappers.frame_stack: axis and fields are not supported with env.backend=envpool")
    skip = atari["frame_skip"]
    if isinstance(skip, list):
        raise ConfigError(f"env.wrappers.atari.frame_skip={skip}: must be one number with env.backend=envpool")
    if atari["noop_max"] == 0:  # EnvPool would never return from a reset
        raise ConfigError("env.wrappers.atari.noop_max=0: must be at least 1 with env.backend=envpool")
    if not atari["grayscale"]:
        raise ConfigError("env.wrappers.atari.grayscale=false: must be true with env.backend=envpool")
    arguments = {
        "frame_skip": skip, "noop_max": atari["noop_max"], "use_fire_reset": atari["fire_reset"],
        "img_height": atari["screen_size"], "img_width": atari["screen_size"], "stack_num": frames["stack"],
        "episodic_life": atari["terminal_on_life_loss"],
    }  # fmt: skip
    if limit is not None:
        arguments["max_episode_steps"] = math.ceil(limit / skip)
    return arguments
