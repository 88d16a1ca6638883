"""Adapts EnvPool (arXiv 2206.10558), which steps environments written in C++ in threads of its own; extra `envpool`.

Its tasks have Gymnasium's ids and mostly Gymnasium's rules, but other random numbers. It differs from single
environments in these points:

- Its constructor takes the seeds, so a reset with seeds makes a new pool.
- A reset takes the step after the end of an episode (`autoreset.NextStep`).
- Its state cannot be saved, so a resumed run begins new episodes.
- An episode that terminates in the last step before the time limit is reported as truncated.
- It preprocesses Atari frames itself. If a lost life ends an episode, the game continues in the next episode.
"""

import warnings
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVectorEnv

from rlrun.errors import ConfigError

PREPARED = {"atari", "frame_stack"}  # wrappers that EnvPool applies itself
FRAMES = {"frameskip", "obs_type"}  # constructor arguments that only prepare single environments for these wrappers


class EnvPool(GymVectorEnv):
    """A vector env of EnvPool. `id` is that of Gymnasium; its namespace is ignored, as in `ALE/Pong-v5`.

    Returned arrays are memory of EnvPool, which the next step may overwrite.
    """

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
        with warnings.catch_warnings(action="ignore"):  # each new pool warns that bounds are rounded
            self.single_observation_space = self.pool.observation_space
            self.single_action_space = self.pool.action_space

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets all environments. seed: a list with one seed per environment, or None."""
        if seed is not None:
            self._begin(list(seed))
        return self.pool.reset()[0], {}

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        return self.pool.step(actions)

    def close_extras(self, **_: Any) -> None:
        self.pool.close()


def preparing(wrappers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns the wrappers `atari` and `frame_stack` as arguments of EnvPool; {} unless both are given."""
    if not wrappers.keys() >= PREPARED:
        return {}
    atari, frames = wrappers["atari"], wrappers["frame_stack"]
    return {
        "frame_skip": atari["frame_skip"], "noop_max": atari["noop_max"], "stack_num": frames["stack"],
        "img_height": atari["screen_size"], "img_width": atari["screen_size"],
        "episodic_life": atari["terminal_on_life_loss"], "use_fire_reset": False,
    }  # fmt: skip
