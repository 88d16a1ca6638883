"""Steps environments written in JAX: one compiled call steps and resets thousands of them.

A task is an object with two pure functions for one environment, `reset(key) -> state` and `step(state, action) ->
state`, and with `observation_space` and `action_space`. A state has the attributes `obs`, `reward` and `done`, and any
others. Resets and time limits are implemented here, because the wrappers of Brax and MuJoCo Playground begin every
episode in the same state as the first one, and overwrite the final observation of an episode.
"""

import os
from typing import Any, NamedTuple

from rlrun.types import Obs

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise JAX reserves most of the GPU's memory

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from rlrun.envs.saving.state import Tree


class Memory(NamedTuple):
    """Everything that determines the next steps. The first dimension of all arrays but `key` is the environment."""

    state: Any
    fresh: Any  # initial states for the next episodes
    used: jax.Array  # [num_envs], whether an environment has used its initial state in `fresh`
    steps: jax.Array  # [num_envs], lengths of the current episodes
    key: jax.Array


class Program:
    """A compiled task for any number of environments. limit: steps after which episodes are truncated, or None."""

    def __init__(self, task: Any, limit: int | None):
        self.task, self.limit = task, limit
        self.begin: Any = jax.jit(self._begin, static_argnums=1)
        self.advance: Any = jax.jit(self._advance)

    def _draw(self, key: jax.Array, count: int) -> tuple[jax.Array, object]:
        """Returns a new key and `count` initial states of episodes.

        The conversion keeps every dtype but removes JAX's weak-type flag, with which JAX would compile a step again.
        """
        key, own = jax.random.split(key)
        states = jax.vmap(self.task.reset)(jax.random.split(own, count))
        return key, jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), states)

    def _begin(self, key: jax.Array, count: int) -> Memory:
        key, state = self._draw(key, count)
        key, fresh = self._draw(key, count)
        return Memory(state, fresh, jnp.zeros(count, bool), jnp.zeros(count, jnp.int32), key)

    def _advance(self, memory: Memory, action: jax.Array) -> tuple[Memory, tuple[object, ...]]:
        """Takes one step. Returns the new memory, and the results of `Simulator.step`.

        If an episode ends in an environment that has used its state in `fresh`, all environments get new states there.
        """
        after = jax.vmap(self.task.step)(memory.state, action)
        steps = memory.steps + 1
        terminated = after.done.astype(bool)
        truncated = jnp.zeros_like(terminated)
        if self.limit is not None:
            truncated = ~terminated & (steps >= self.limit)
        ended = terminated | truncated
        is_drawn = (ended & memory.used).any()
        key, fresh = jax.lax.cond(
            is_drawn, lambda: self._draw(memory.key, len(steps)), lambda: (memory.key, memory.fresh)
        )
        used = ended | (memory.used & ~is_drawn)

        def choose(new: jax.Array, old: jax.Array) -> jax.Array:
            rows = ended.reshape(-1, *[1] * (new.ndim - 1))
            return jnp.where(rows, new, old.astype(new.dtype))

        state = jax.tree.map(choose, fresh, after)
        seen = (state.obs, after.reward.astype(jnp.float32), terminated, truncated, after.obs)
        return Memory(state, fresh, used, jnp.where(ended, 0, steps), key), seen


class JaxEnv:
    """A Simulator, as `envs.stepping.accelerated` defines it, of one compiled task."""

    def __init__(self, program: Program, num_envs: int):
        self.program, self.num_envs = program, num_envs
        self.single_observation_space = program.task.observation_space
        self.single_action_space = program.task.action_space
        self.device = jax.devices()[0]  # an accelerator if JAX finds one, else the CPU
        self.memory: Any = None

    def to(self, device: torch.device) -> None: ...

    def reset(self, seed: int | None) -> Obs:
        if seed is None:
            key = self.memory.key
        else:
            key = self._here(jax.random.PRNGKey(seed))
        self.memory = self.program.begin(key, self.num_envs)
        return self.memory.state.obs

    def step(self, actions: Tensor) -> Any:
        self.memory, seen = self.program.advance(self.memory, self._here(jnp.from_dlpack(actions)))
        return seen

    def close(self) -> None:
        self.memory = None

    def get_extra_state(self) -> Tree:
        return {"arrays": [np.array(leaf) for leaf in jax.tree.leaves(self.memory)]}

    def set_extra_state(self, tree: Any) -> None:
        like = jax.eval_shape(lambda key: self.program.begin(key, self.num_envs), jax.random.PRNGKey(0))
        arrays = [self._here(jnp.array(array)) for array in tree["arrays"]]
        self.memory = jax.tree.unflatten(jax.tree.structure(like), arrays)

    def _here(self, array: jax.Array) -> jax.Array:
        """Returns an array on the device. All arrays must be there from the start, or a step is compiled twice."""
        return jax.device_put(array, self.device)
