"""Makes the environments of a run as plain environments of Gymnasium, for a loop of the user's own."""

import dataclasses
from functools import partial
from pathlib import Path

import gymnasium as gym
from gymnasium.vector import SyncVectorEnv, VectorEnv

from rlrun.config.schema import RunConfig
from rlrun.envs.making.explained import explained
from rlrun.envs.making.make import Recipe, recipe
from rlrun.errors import ConfigError
from rlrun.run.assemble import eval_env_config
from rlrun.run.data import check_stored_data
from rlrun.run.trained import built_from, check_unchanged, eval_config, stored_config
from rlrun.run.weights import locate
from rlrun.rundir import RunDir
from rlrun.snapshot.store import Store
from rlrun.types import Info


class InstanceSeed(gym.Wrapper):
    """Passes `env.instance_seed` to every reset, as an option."""

    def __init__(self, env: gym.Env, instance_seed: int):
        super().__init__(env)
        self.instance_seed = instance_seed

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[object, Info]:
        return self.env.reset(seed=seed, options={**(options or {}), "instance_seed": self.instance_seed})


def make_env(
    config: RunConfig, num_envs: int | None = None, render_mode: str | None = None, masked: bool = True
) -> gym.Env | VectorEnv:
    """Returns an environment with arguments and wrappers as in evaluations of a run, or `num_envs` as a VectorEnv.

    masked: as in `eval_env`. Raises ConfigError.
    """
    if num_envs is not None and (type(num_envs) is not int or num_envs < 1):
        raise ConfigError(f"num_envs={num_envs}: must be a whole number, at least 1, or None for a single environment")
    env = eval_env_config(config, num_envs or 1, masked)
    if render_mode is not None:
        env = dataclasses.replace(env, kwargs=env.kwargs | {"render_mode": render_mode})
    one = recipe(env)
    with explained(one.spec, one.kwargs, one.id):
        if one.vectorised:
            return vector_env(one, num_envs)
        if num_envs is None:
            return single_env(one)
        return SyncVectorEnv([partial(single_env, one.at(index)) for index in range(num_envs)])


def single_env(one: Recipe) -> gym.Env:
    """Returns a new environment in its wrappers."""
    env = one.make()
    if one.instance_seed is not None:
        env = InstanceSeed(env, one.instance_seed)
    return env


def vector_env(one: Recipe, num_envs: int | None) -> VectorEnv:
    """Returns the vector env of an id that has no single environments. Raises ConfigError if it is not Gymnasium's."""
    made = one.vector_env(num_envs or 1)
    if not isinstance(made, VectorEnv):
        raise ConfigError(f"env={one.id}: is a simulator of tensors, and no environment of Gymnasium")
    if num_envs is None:
        raise ConfigError(f"env={one.id}: has no single environments, only a simulator for all; set num_envs=1")
    return made


def stored_env(path: Path, num_envs: int | None, render_mode: str | None) -> gym.Env | VectorEnv:
    """Returns environments of a stored run or snapshot, which may be untrusted, as `make_env` does."""
    path, name = locate(path)
    config = stored_config(path)
    store = Store(path)
    if name is not None or store.names():
        check_unchanged(path, store.load(name or store.preferred()))
    check_stored_data(config, RunDir.meta_of(path).get("data"), "evaluate")
    words = {}
    if render_mode is not None:
        words["env.kwargs.render_mode"] = render_mode
    with built_from(path):
        env = eval_config(config.env, words)
        return make_env(dataclasses.replace(config, env=env), num_envs)
