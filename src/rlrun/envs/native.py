"""Simulators that step all their environments at once: an id's `vector_entry_point`.

Where that is all an id has, it is what runs; where an id has single environments too, `env.backend=native` asks for it.
Which of both steps the environments is a matter of the config alone. They draw from one generator, so that episodes are
others than those of single environments, and a simulator may spend a step of its own on a reset (`autoreset.NextStep`).
"""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import VectorEnv as GymVectorEnv
from gymnasium.vector import VectorWrapper

from rlrun.config.schema import EnvConfig
from rlrun.envs import state
from rlrun.envs.accelerated import Simulator
from rlrun.envs.make import Recipe, explained
from rlrun.envs.selftest import EPISODE_END, NATIVE, Method, simulator_self_test
from rlrun.envs.state import Tree
from rlrun.errors import ConfigError


class Native(VectorWrapper):
    """A simulator that knows nothing of seeds for each environment, nor how to be saved."""

    def __init__(self, make: Callable[[], GymVectorEnv], venv: GymVectorEnv | None = None):
        super().__init__(venv or make())
        self.make = make

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """`seed`: one for each environment, of which the simulator's only one is made, or None."""
        if seed is not None:
            seed = int(np.random.SeedSequence(seed).generate_state(1, np.uint32)[0] >> 1)
            for space in (value for value in vars(self.env).values() if isinstance(value, Space)):
                space.seed(seed)  # else of the process's own making, and a part of the state
        return self.env.reset(seed=seed, options=options)

    def get_extra_state(self) -> Tree:
        return state.attributes(self.env)

    def set_extra_state(self, tree: Tree) -> None:
        self.reset(seed=0)  # which may create attributes
        state.assign(self.env, tree)


def simulator(recipe: Recipe, cfg: EnvConfig) -> GymVectorEnv | Simulator:
    """All environments of a config. Raises ConfigError where its id has no simulator, or one of something else."""
    if recipe.spec.vector_entry_point is None:
        raise ConfigError(f"env.backend=native: {cfg.id} has no simulator that steps all its environments at once")
    refused = {"task_kwargs": bool(cfg.task_kwargs)}
    if not recipe.vectorised:  # what single environments would obey
        refused |= {"wrappers": bool(cfg.wrappers), "instance_seed": recipe.instance_seed is not None}
        refused |= {"on_failure=restart": cfg.on_failure == "restart"}
    for key in (key for key, given in refused.items() if given):
        raise ConfigError(f"env.{key}: not for {cfg.id} where one simulator steps all its environments")
    with explained(recipe, cfg.id):
        make = partial(recipe.all, cfg.num_envs)
        venv = make()
        if not recipe.vectorised:
            _check_spaces(recipe, venv, cfg.id)
    return venv if hasattr(venv, "get_extra_state") else Native(make, venv)


def own_method(venv: GymVectorEnv) -> Method:
    """How a simulator is saved."""
    if isinstance(venv, Native):
        return simulator_self_test(partial(Native, venv.make))
    if hasattr(venv, "get_extra_state") and hasattr(venv, "set_extra_state"):
        return Method(NATIVE, "")
    return Method(EPISODE_END, "it is a simulator of its own")


def _check_spaces(recipe: Recipe, venv: GymVectorEnv, id: str) -> None:
    """Evaluation and single environments must see what the simulator shows. Raises ConfigError."""
    with closing(recipe.make()) as one:
        pairs = {
            "observations": (one.observation_space, venv.single_observation_space),
            "actions": (one.action_space, venv.single_action_space),
        }
    for what, (alone, together) in pairs.items():
        if alone != together:
            raise ConfigError(f"env.backend=native: {what} of {id} are {together} there, {alone} in one environment")
