"""Makes tasks of environments written in JAX: those of MuJoCo Playground and Gymnasium's functional environments.

Needs the extra `jax`.
"""

import json
import warnings
from functools import cache
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator

from rlrun.envs.config import PLAYGROUND
from rlrun.envs.simulators.program import JaxEnv, Program
from rlrun.errors import ConfigError, closest, did_you_mean


class Physics:
    """A task of MuJoCo Playground, or of any environment with the interface of Brax."""

    def __init__(self, env: Any):
        self.reset, self.step = env.reset, env.step
        self.observation_space = _space(jax.eval_shape(env.reset, jax.random.PRNGKey(0)).obs)
        self.action_space = spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)


class State(NamedTuple):
    """The state of one functional environment, with the random key for its next step."""

    inner: Any
    key: jax.Array
    obs: Any
    reward: jax.Array
    done: jax.Array


class Functional:
    """A functional environment of Gymnasium. Such environments have no random state, so `State` holds a key."""

    def __init__(self, env: Any):
        self.env, self.observation_space, self.action_space = env, env.observation_space, env.action_space

    def reset(self, key: jax.Array) -> State:
        key, draw = jax.random.split(key)
        inner = self.env.initial(draw)
        return State(inner, key, self.env.observation(inner, draw), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: State, action: jax.Array) -> State:
        key, draw = jax.random.split(state.key)
        inner = self.env.transition(state.inner, action, draw)
        reward = self.env.reward(state.inner, action, inner, draw)
        return State(inner, key, self.env.observation(inner, draw), reward, self.env.terminal(inner, draw))


def specification(id: str) -> EnvSpec:
    """Returns the specification of `playground/NAME`, or of a Gymnasium id with a functional environment.

    Raises ConfigError or gymnasium.error.Error for unknown names, ModuleNotFoundError if a package is missing.
    """
    if not id.startswith(PLAYGROUND):
        limit = gym.spec(id).max_episode_steps
    else:
        known, name = playground(), id.removeprefix(PLAYGROUND)
        if name not in known.ALL_ENVS:
            near = closest(name, known.ALL_ENVS)
            raise ConfigError(f"env.id={id!r}: unknown{did_you_mean(near, PLAYGROUND)}")
        limit = known.get_default_config(name).episode_length
    return EnvSpec(id, vector_entry_point=f"{__name__}:make", max_episode_steps=limit, kwargs={"id": id})


def make(num_envs: int, id: str, max_episode_steps: int | None = None, **kwargs: object) -> JaxEnv:
    """Returns `num_envs` environments of an id. It is the entry point that `specification` sets."""
    return JaxEnv(compiled(id, json.dumps(kwargs, sort_keys=True), max_episode_steps), num_envs)


@cache
def compiled(id: str, kwargs: str, limit: int | None) -> Program:
    """Returns the compiled task of an id, from a cache, so that evaluations do not compile it again.

    kwargs: arguments as JSON text, because the cache cannot compare dicts.
    """
    return Program(task(id, json.loads(kwargs)), limit)


def task(id: str, kwargs: dict[str, object]) -> Any:
    """Returns the task of an id, as described in `program`. Raises ValueError if its environment is not functional."""
    if id.startswith(PLAYGROUND):
        return Physics(playground().load(id.removeprefix(PLAYGROUND), config_overrides=kwargs))
    spec = gym.spec(id)
    env: Any = load_env_creator(str(spec.entry_point))(**(spec.kwargs | kwargs))
    if not hasattr(env, "func_env"):
        raise ValueError("it is not a functional environment")
    return Functional(env.func_env)


def playground() -> Any:
    """Returns the registry of MuJoCo Playground, imported without the warnings of its dependencies."""
    with warnings.catch_warnings(action="ignore"):
        from mujoco_playground import registry
    return registry


def _space(shape: Any) -> gym.Space:
    if isinstance(shape, dict):
        return spaces.Dict({key: _space(part) for key, part in shape.items()})
    return spaces.Box(-np.inf, np.inf, shape.shape, np.float32)
