"""The optimal return of an environment with tabular dynamics, as a reference for agents."""

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from rlrun.config.schema import EnvConfig
from rlrun.envs.make import make
from rlrun.errors import ConfigError
from rlrun.functional.tabular import value_iteration


def optimal_return(cfg: EnvConfig) -> tuple[float, int | None]:
    """The largest expected return of an episode, and the time limit that it assumes, if there is one.

    Raises ConfigError where the environment does not publish its dynamics as Gymnasium's toy-text environments do.
    """
    env = make(cfg)
    try:
        core: Any = env.unwrapped
        if not hasattr(core, "P") or not hasattr(core, "initial_state_distrib"):
            raise ConfigError(
                f"optimal=true: {cfg.id} does not publish its dynamics (as FrozenLake, Taxi and others do)"
            )
        horizon = _time_limit(env)
        value = value_iteration(*dynamics(core.P), horizon=horizon)
        return float(torch.as_tensor(core.initial_state_distrib, dtype=value.dtype) @ value), horizon
    finally:
        env.close()


def dynamics(table: dict[int, dict[int, list[tuple[float, int, float, bool]]]]) -> tuple[Tensor, Tensor]:
    """Transition [S, A, S] and reward [S, A] from state -> action -> [(probability, next state, reward, terminated)].

    A transition that ends the episode counts for its reward only.
    """
    states, actions = len(table), len(table[0])
    transition = torch.zeros(states, actions, states, dtype=torch.float64)
    reward = torch.zeros(states, actions, dtype=torch.float64)
    for state, row in table.items():
        for action, outcomes in row.items():
            for probability, successor, gain, terminated in outcomes:
                reward[state, action] += probability * gain
                if not terminated:
                    transition[state, action, successor] += probability
    return transition, reward


def _time_limit(env: gym.Env) -> int | None:
    """The shortest of all layers."""
    limits = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min(limits, default=None)
