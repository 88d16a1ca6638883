"""EnvPool (arXiv 2206.10558): environments in C++, stepped by threads of its own; extra `envpool`.

Its tasks have Gymnasium's ids and mostly Gymnasium's rules, not its numbers. Three things differ: the constructor takes
the seeds, so a seeded reset makes it anew; its step after an end is the reset (`autoreset.NextStep`); and its state
cannot be saved, so that a resumed run begins new episodes. An end in the last step before the time limit counts as
truncation. EnvPool prepares the frames of Atari; where a lost life ends an episode, the game continues in the next.
"""

import warnings
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVectorEnv

from rlrun.errors import ConfigError

PREPARED = {"atari", "frame_stack"}  # wrappers that EnvPool applies itself
FRAMES = {"frameskip", "obs_type"}  # arguments of single environments that are for these wrappers


class EnvPool(GymVectorEnv):
    """`id` as in Gymnasium, but for its namespace. Observations and the like are EnvPool's memory."""

    def __init__(self, id: str, num_envs: int, **arguments: Any):
        try:
            import envpool
        except ImportError as error:
            raise ConfigError("env.backend=envpool: EnvPool is not installed; pip install rlrun[envpool]") from error
        name = id.rpartition("/")[2]
        if name not in envpool.list_all_envs():
            raise ConfigError(f"env.backend=envpool: EnvPool has no {name}")
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = num_envs
        self.make = partial(envpool.make_gymnasium, name, num_envs=num_envs, **arguments)
        self._begin([0] * num_envs)

    def _begin(self, seeds: list[int]) -> None:
        self.pool: Any = self.make(seed=seeds)
        with warnings.catch_warnings(action="ignore"):  # that bounds are rounded, once for every pool
            self.single_observation_space = self.pool.observation_space
            self.single_action_space = self.pool.action_space

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """seed: one for each environment, or None."""
        if seed is not None:
            self._begin(list(seed))
        return self.pool.reset()[0], {}

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        return self.pool.step(actions)

    def close_extras(self, **_: Any) -> None:
        self.pool.close()


def preparing(wrappers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The wrappers for Atari as arguments of EnvPool; nothing without them."""
    if not wrappers.keys() >= PREPARED:
        return {}
    atari, frames = wrappers["atari"], wrappers["frame_stack"]
    return {
        "frame_skip": atari["frame_skip"], "noop_max": atari["noop_max"], "stack_num": frames["stack"],
        "img_height": atari["screen_size"], "img_width": atari["screen_size"],
        "episodic_life": atari["terminal_on_life_loss"], "use_fire_reset": False,
    }  # fmt: skip
