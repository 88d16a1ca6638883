"""Simulators that step all their environments at once: an id's `vector_entry_point`, and EnvPool.

An id that has only such an entry point always uses it; for one that has single environments too, `env.backend`
decides. Numbers and episodes are not those of single environments, and a simulator may take a step for a reset
(`autoreset.NextStep`). Evaluation plays single environments.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv as GymVectorEnv
from gymnasium.vector import VectorWrapper

from rlrun.config.schema import EnvConfig
from rlrun.envs import state
from rlrun.envs.accelerated import Simulator
from rlrun.envs.actions import Actions
from rlrun.envs.envpool import FRAMES, PREPARED, EnvPool, preparing
from rlrun.envs.examination import examined, report, untested
from rlrun.envs.explained import explained
from rlrun.envs.make import Recipe, entry_point
from rlrun.envs.obs_adapter import as_tensors
from rlrun.envs.selftest import EPISODE_END, NATIVE, Method, simulator_self_test
from rlrun.envs.slot import EnvError
from rlrun.envs.state import Tree
from rlrun.envs.verdicts import Verdict
from rlrun.envs.workers import form_of
from rlrun.errors import ConfigError, RunError


class Native(VectorWrapper):
    """A simulator that takes no seed for each environment and does not save its state."""

    def __init__(self, make: Callable[[], GymVectorEnv], venv: GymVectorEnv | None = None):
        super().__init__(venv or make())
        self.make = make

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """seed: one for each environment, combined into the one seed of the simulator, or None."""
        if seed is not None:
            seed = int(np.random.SeedSequence(seed).generate_state(1, np.uint32)[0] >> 1)
            for value in vars(self.env).values():
                if isinstance(value, Space):  # seeded by the operating system otherwise, and part of the state
                    value.seed(seed)
        return self.env.reset(seed=seed, options=options)

    def get_extra_state(self) -> Tree:
        return state.attributes(self.env)

    def set_extra_state(self, tree: Tree) -> None:
        self.reset(seed=0)  # which may create attributes
        state.assign(self.env, tree)


def simulator(recipe: Recipe, cfg: EnvConfig) -> tuple[GymVectorEnv | Simulator, Verdict | None]:
    """All environments of a config, and how they are saved where they do not declare that themselves.

    Raises ConfigError where the id has no simulator, or one with other spaces.
    """
    envpool = cfg.backend == "envpool"
    if recipe.spec.vector_entry_point is None and not envpool:
        raise ConfigError(f"env.backend=native: {cfg.id} has no simulator that steps all its environments at once")
    wrappers = set(cfg.wrappers)
    make: Callable[[], Any] = partial(recipe.all, cfg.num_envs)
    if envpool:
        wrappers -= PREPARED
        make = partial(_envpool, recipe, cfg)
    _check_keys(recipe, cfg, wrappers)
    with explained(recipe.spec, recipe.kwargs, cfg.id):
        verdict = None
        if _is_tested(recipe, cfg):
            verdict = examined(recipe, cfg, examine_simulator, (recipe, make))
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
    report(pipe, False, {})
    if own:
        method = Method(NATIVE, "")
    else:
        method = simulator_self_test(partial(Native, make))
    report(pipe, method, {})


def _envpool(recipe: Recipe, cfg: EnvConfig) -> GymVectorEnv:
    prepared = preparing(cfg.wrappers)
    arguments: dict[str, Any] = {}
    limit = recipe.max_episode_steps or recipe.spec.max_episode_steps
    if limit is not None:
        arguments["max_episode_steps"] = limit
    arguments |= recipe.kwargs
    if prepared:
        for key in FRAMES & arguments.keys():
            del arguments[key]
    return EnvPool(recipe.spec.id, cfg.num_envs, **(arguments | prepared))


def _check_keys(recipe: Recipe, cfg: EnvConfig, wrappers: set[str]) -> None:
    """Raises ConfigError for a key that applies to single environments only."""
    refused = {"task_kwargs": bool(cfg.task_kwargs), "wrappers": bool(wrappers - {"time_limit"})}
    if not recipe.vectorised:
        refused |= {"wrappers": bool(wrappers), "instance_seed": recipe.instance_seed is not None}
        refused |= {"on_failure=restart": cfg.on_failure == "restart"}
    for key, given in refused.items():
        if given:
            raise ConfigError(f"env.{key}: {cfg.id} steps all its environments at once, and takes no {key}")


def _is_tested(recipe: Recipe, cfg: EnvConfig) -> bool:
    """Whether a self-test must find out how a simulator is saved."""
    if cfg.backend in ("envpool", "jax"):
        return False
    return not hasattr(entry_point(recipe.spec.vector_entry_point), "get_extra_state")


def own_verdict(venv: GymVectorEnv) -> Verdict:
    """The verdict on a simulator that was not tested: whether it has methods to save its state."""
    if hasattr(venv, "get_extra_state") and hasattr(venv, "set_extra_state") and not isinstance(venv, Native):
        return untested(Method(NATIVE, ""))
    return untested(Method(EPISODE_END, "its simulator gives no state"))


def _check_spaces(recipe: Recipe, venv: GymVectorEnv, cfg: EnvConfig) -> None:
    """Raises ConfigError where the spaces of single environments, which evaluation plays, are others."""
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
    if isinstance(space, spaces.Box):
        return f"Box{space.shape} of {space.dtype}"
    return str(space)
