"""Makes vector envs, which step all their environments in one call: an id's `vector_entry_point`, or EnvPool.

An id that has only a `vector_entry_point` always uses it. If an id also has single environments, `env.backend` selects
between them; `env.backend=torch` sets `vector_entry_point` to one of `rlrun.envs.simulators.suite`. Results differ from
those of single environments, and a reset may consume a step (`autoreset.NextStep`). Evaluation uses single environments
if the id has them.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import VectorEnv as GymVectorEnv
from gymnasium.vector import VectorWrapper

from rlrun.envs.config import EnvConfig
from rlrun.envs.making.envpool import FRAMES, PREPARED, EnvPool, preprocessing
from rlrun.envs.making.explained import explained
from rlrun.envs.making.make import Recipe, entry_point
from rlrun.envs.same_spaces import actions, observations
from rlrun.envs.saving import state
from rlrun.envs.saving.examination import examined, report, verdict_of
from rlrun.envs.saving.selftest import EPISODE_END, NATIVE, Method, simulator_self_test
from rlrun.envs.saving.state import Tree
from rlrun.envs.saving.verdicts import Verdict
from rlrun.envs.stepping.accelerated import Simulator
from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.workers import form_of
from rlrun.errors import ConfigError, RunError
from rlrun.types import Info


class Native(VectorWrapper):
    """Wraps a vector env that accepts only a single seed and has no methods to save its state."""

    def __init__(self, make: Callable[[], GymVectorEnv], venv: GymVectorEnv | None = None):
        super().__init__(venv or make())
        self.make = make

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, Info]:
        """Resets the vector env. If there is one seed per environment, they are combined into one."""
        combined = None
        if seed is not None:
            # 31 bits, because some simulators accept no more
            combined = int(np.random.SeedSequence(seed).generate_state(1, np.uint32)[0] >> 1)
            for value in vars(self.env).values():
                if isinstance(value, Space):  # spaces may be sampled; without a seed their samples differ in each run
                    value.seed(combined)
        return self.env.reset(seed=combined, options=options)

    def get_extra_state(self) -> Tree:
        return state.attributes(self.env)

    def set_extra_state(self, tree: Any) -> None:
        self.reset(seed=0)  # a reset may create attributes
        state.assign(self.env, tree)


def simulator(recipe: Recipe, cfg: EnvConfig) -> tuple[GymVectorEnv | Simulator, Verdict | None]:
    """Returns the vector env of a config, and the verdict on how to save its state if it has no methods for that.

    Raises ConfigError if the id has no vector env, if its spaces differ from those of single environments, or if the
    config has keys that it does not support.
    """
    envpool = cfg.backend == "envpool"
    if recipe.spec.vector_entry_point is None and not envpool:
        raise ConfigError(f"env.backend=native: {cfg.id} has no vector env of its own")
    wrappers = set(cfg.wrappers)
    make: Callable[[], Any] = partial(recipe.vector_env, cfg.num_envs)
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


def examine_simulator(
    pipe: Connection, index: int, given: tuple[Recipe, Callable[[], Any]], resources: ExitStack
) -> None:
    """Runs the self-test of a vector env in a worker, and reports the result as `examination.examine` does."""
    recipe, make = given
    with explained(recipe.spec, recipe.kwargs, recipe.id):
        venv = make()
    saves_itself = hasattr(venv, "get_extra_state")
    pipe.send((None, None))
    venv.close()
    report(pipe, False)
    if saves_itself:
        method = Method(NATIVE, "")
    else:
        method = simulator_self_test(partial(Native, make))
    report(pipe, method)


def _envpool(recipe: Recipe, cfg: EnvConfig) -> GymVectorEnv:
    arguments: dict[str, object] = {}
    limit = recipe.max_episode_steps or recipe.spec.max_episode_steps
    prepared = preprocessing(cfg.wrappers, limit)
    if limit is not None:
        arguments["max_episode_steps"] = limit
    arguments |= recipe.kwargs
    if prepared:
        for key in FRAMES & arguments.keys():
            del arguments[key]
    return EnvPool(recipe.spec.id, cfg.num_envs, **(arguments | prepared))


def _check_keys(recipe: Recipe, cfg: EnvConfig, wrappers: set[str]) -> None:
    """Raises ConfigError for a key that applies to single environments only."""
    refused = {"task_kwargs": bool(cfg.task_kwargs), "index_kwarg": cfg.index_kwarg is not None}
    refused |= {"wrappers": bool(wrappers - {"time_limit"})}
    if not recipe.vectorised:
        refused |= {"wrappers": bool(wrappers), "instance_seed": recipe.instance_seed is not None}
        refused |= {"on_failure=restart": cfg.on_failure == "restart"}
    for key, given in refused.items():
        if given:
            raise ConfigError(f"env.{key}: {cfg.id} steps all its environments at once, and does not support {key}")


def _is_tested(recipe: Recipe, cfg: EnvConfig) -> bool:
    """Returns whether a self-test must determine how the state of the vector env is saved."""
    if cfg.backend in ("envpool", "jax"):
        return False
    return not hasattr(entry_point(recipe.spec.vector_entry_point), "get_extra_state")


def own_verdict(venv: GymVectorEnv) -> Verdict:
    """Returns the verdict on an untested vector env: NATIVE if it has methods to save its state, else EPISODE_END."""
    if hasattr(venv, "get_extra_state") and hasattr(venv, "set_extra_state") and not isinstance(venv, Native):
        return verdict_of(Method(NATIVE, ""))
    return verdict_of(Method(EPISODE_END, "its vector env cannot save its state"))


def _check_spaces(recipe: Recipe, venv: GymVectorEnv, cfg: EnvConfig) -> None:
    """Raises ConfigError if the spaces differ from those of single environments, which evaluation uses."""
    try:
        single = form_of(recipe, cfg.timeout_s)
    except EnvError as error:
        raise RunError(f"env {cfg.id}: {error.reason}") from error
    pairs = {
        "observations": (observations(single.observation_space), observations(venv.single_observation_space)),
        "actions": (actions(single.action_space), actions(venv.single_action_space)),
    }
    for what, (alone, together) in pairs.items():
        if alone != together:
            raise ConfigError(
                f"env.backend={cfg.backend}: {what} of {cfg.id} are {together} in the vector env, "
                f"{alone} in a single env"
            )
