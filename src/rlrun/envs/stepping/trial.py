"""Takes a few steps in environments of an untrusted config, in a worker, which imports torch only for simulators."""

import contextlib
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from rlrun import operating_system
from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.obs_adapter import sample

if TYPE_CHECKING:
    from rlrun.envs.stepping.accelerated import Simulator

STEPS = 3
Make = Callable[[], gym.Env]


def scheduled(one: Recipe, parameters: dict[str, float]) -> Any:
    """Returns a new environment whose next episode begins with these scheduled attributes."""
    env = one()
    env.set_parameters(parameters)
    return env


def take_steps(
    pipe: Connection, index: int, given: tuple[Iterable[Make], int], resources: contextlib.ExitStack
) -> None:
    """Runs in a worker: makes environments, takes a few steps in each, and reports that it is done."""
    makes, limit = given
    operating_system.limit_memory(limit)
    for make in makes:
        env = make()
        resources.callback(env.close)
        if isinstance(env, gym.Env | gym.vector.VectorEnv):
            step_environment(env)
        else:
            step_simulator(env)
    pipe.send((None, None))


def step_environment(env: gym.Env) -> None:
    """Takes a few random steps in an environment or a vector env of Gymnasium."""
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    for _ in range(STEPS):
        obs, _, terminated, truncated, _ = env.step(sample(env.action_space, obs))
        if np.any(terminated) or np.any(truncated):
            obs, _ = env.reset()


def step_simulator(simulator: "Simulator") -> None:
    """Takes a few random steps in a simulator, by the vector environment that samples its actions."""
    from rlrun.core.random import Stream
    from rlrun.envs.stepping.accelerated import Accelerated

    env = Accelerated(simulator, np.random.SeedSequence(0), "cpu", name="simulator")
    random = Stream(0, "actions")
    env.reset()
    for _ in range(STEPS):
        env.step(env.sample(random))
