"""Simulators that step all their environments at once: an id's `vector_entry_point`, and EnvPool.

Where an entry point is all that an id has, it is what runs; where it has single environments too, `env.backend` asks:
which of them steps is a matter of the config alone. Numbers and episodes are not those of single environments, and a
simulator may spend a step of its own on a reset (`autoreset.NextStep`). Evaluation plays single environments.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv as GymVectorEnv
from gymnasium.vector import VectorWrapper

from rlrun.config.schema import EnvConfig
from rlrun.envs import state
from rlrun.envs.accelerated import Simulator
from rlrun.envs.actions import Actions
from rlrun.envs.envpool import FRAMES, PREPARED, EnvPool, preparing
from rlrun.envs.examination import examined, tell, untested
from rlrun.envs.explained import explained
from rlrun.envs.make import Recipe
from rlrun.envs.presented import as_tensors
from rlrun.envs.selftest import EPISODE_END, NATIVE, Method, simulator_self_test
from rlrun.envs.slot import EnvError
from rlrun.envs.state import Tree
from rlrun.envs.verdicts import Verdict
from rlrun.envs.workers import form_of
from rlrun.errors import ConfigError, RunError


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


def simulator(recipe: Recipe, cfg: EnvConfig) -> tuple[GymVectorEnv | Simulator, Verdict | None]:
    """All environments of a config, and how they are saved where they do not know that themselves.

    Raises ConfigError where its id has no simulator, or one of something else.
    """
    envpool = cfg.backend == "envpool"
    if recipe.spec.vector_entry_point is None and not envpool:
        raise ConfigError(f"env.backend=native: {cfg.id} has no simulator that steps all its environments at once")
    _check_keys(recipe, cfg, set(cfg.wrappers) - (PREPARED if envpool else set()))
    make = partial(_envpool, recipe, cfg) if envpool else partial(recipe.all, cfg.num_envs)
    with explained(recipe.spec, recipe.kwargs, cfg.id):
        verdict = examined(recipe, cfg, examine_simulator, (recipe, make)) if _is_tested(recipe, cfg) else None
        venv = make()
        if not recipe.vectorised:
            _check_spaces(recipe, venv, cfg)
    if hasattr(venv, "get_extra_state") or isinstance(venv, EnvPool):
        return venv, None
    return Native(make, venv), verdict


def examine_simulator(pipe: Any, index: int, given: tuple[Recipe, Callable[[], Any]], things: ExitStack) -> None:
    """In a worker: the self-test of a simulator, reported like that of an environment (`examination.examine`)."""
    recipe, make = given
    with explained(recipe.spec, recipe.kwargs, recipe.id):
        simulator = make()
    own = hasattr(simulator, "get_extra_state")
    pipe.send((None, None))
    simulator.close()
    tell(pipe, False, {})
    tell(pipe, Method(NATIVE, "") if own else simulator_self_test(partial(Native, make)), {})


def _envpool(recipe: Recipe, cfg: EnvConfig) -> GymVectorEnv:
    prepared = preparing(cfg.wrappers)
    given = {key: value for key, value in recipe.kwargs.items() if not (prepared and key in FRAMES)}
    limit = recipe.max_episode_steps or recipe.spec.max_episode_steps
    time = {} if limit is None else {"max_episode_steps": limit}
    return EnvPool(recipe.spec.id, cfg.num_envs, **(time | given | prepared))


def _check_keys(recipe: Recipe, cfg: EnvConfig, wrappers: set[str]) -> None:
    """Raises ConfigError for a key that only single environments obey."""
    refused = {"task_kwargs": bool(cfg.task_kwargs), "wrappers": bool(wrappers - {"time_limit"})}
    if not recipe.vectorised:
        refused |= {"wrappers": bool(wrappers), "instance_seed": recipe.instance_seed is not None}
        refused |= {"on_failure=restart": cfg.on_failure == "restart"}
    for key in (key for key, given in refused.items() if given):
        raise ConfigError(f"env.{key}: {cfg.id} steps all its environments at once, and takes no {key}")


def _is_tested(recipe: Recipe, cfg: EnvConfig) -> bool:
    """Whether nothing else says how a simulator is saved."""
    if cfg.backend in ("envpool", "jax"):
        return False
    make: Any = recipe.spec.vector_entry_point
    return not hasattr(load_env_creator(make) if isinstance(make, str) else make, "get_extra_state")


def own_verdict(venv: GymVectorEnv) -> Verdict:
    """How a simulator says that it is saved."""
    knows = hasattr(venv, "get_extra_state") and hasattr(venv, "set_extra_state") and not isinstance(venv, Native)
    return untested(Method(NATIVE, "") if knows else Method(EPISODE_END, "its simulator gives no state"))


def _check_spaces(recipe: Recipe, venv: GymVectorEnv, cfg: EnvConfig) -> None:
    """Single environments, and so evaluation, must show what the simulator shows. Raises ConfigError."""
    try:
        one = form_of(recipe, cfg.timeout_s)
    except EnvError as error:
        raise RunError(f"env {cfg.id}: {error.reason}") from error
    pairs = {
        "observations": (_form(one.observation_space), _form(venv.single_observation_space)),
        "actions": (str(Actions(one.action_space).space), str(Actions(venv.single_action_space).space)),
    }
    for what, (alone, together) in pairs.items():
        if alone != together:
            raise ConfigError(
                f"env.backend={cfg.backend}: {what} of {cfg.id} are {together} there, {alone} in one environment"
            )


def _form(space: Space) -> str:
    """Shape and kind of observations, as tensors hold them; their bounds do not matter."""
    space = as_tensors(space)
    if isinstance(space, spaces.Dict):
        return str({key: _form(part) for key, part in space.items()})
    return f"Box{space.shape} of {space.dtype}" if isinstance(space, spaces.Box) else str(space)
