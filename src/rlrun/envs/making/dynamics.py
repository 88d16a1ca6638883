"""Computes the optimal return of an environment with tabular dynamics, as a reference for agents."""

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from rlrun.envs.config import EnvConfig
from rlrun.envs.making.make import make
from rlrun.errors import ConfigError
from rlrun.functional.tabular import value_iteration


def optimal_return(cfg: EnvConfig) -> tuple[float, int | None]:
    """Returns the largest expected return of an episode, and the time limit (None if there is none) that it assumes.

    Raises ConfigError if the environment lacks the attributes `P` and `initial_state_distrib` of Gymnasium's toy-text
    environments.
    """
    env = make(cfg)
    try:
        core: Any = env.unwrapped
        if not hasattr(core, "P") or not hasattr(core, "initial_state_distrib"):
            raise ConfigError(f"optimal=true: {cfg.id} has no table of its dynamics, P, as FrozenLake and Taxi have")
        horizon = _time_limit(env)
        value = value_iteration(*dynamics(core.P), horizon=horizon)
        return float(torch.as_tensor(core.initial_state_distrib, dtype=value.dtype) @ value), horizon
    finally:
        env.close()


def dynamics(table: dict[int, dict[int, list[tuple[float, int, float, bool]]]]) -> tuple[Tensor, Tensor]:
    """Returns transition probabilities [S, A, S] and expected rewards [S, A].

    table: state -> action -> [(probability, next state, reward, terminated)]. The probabilities of terminating
    transitions are left out, so they add their reward but no value of a next state.
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
    """Returns the shortest time limit in the wrapper chain, or None if there is none."""
    limits = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min(limits, default=None)
