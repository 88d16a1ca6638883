"""Vector environments of an id, for tests of environments and shards."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from toys import NO_RAY, NOT_NORMALIZED

from rlrun.envs.config import EnvConfig
from rlrun.envs.stepping.vector import VectorEnv


def env_config(id: str, num_envs: int = 1, **values: Any) -> EnvConfig:
    base = {
        "backend": "sync",
        "ray": NO_RAY,
        "kwargs": {},
        "task_kwargs": {},
        "index_kwarg": None,
        "eval_kwargs": {},
        "wrappers": {},
        "normalize": NOT_NORMALIZED,
        "transforms": [],
        "max_episode_steps": None,
        "instance_seed": None,
        "timeout_s": 10.0,
        "on_failure": "raise",
        "action_mask": True,
        "selftest": "auto",
        "log_info": [],
        "executed_action": None,
        "schedule": {},
    }
    return EnvConfig(id=id, num_envs=num_envs, **{**base, **values})


@pytest.fixture
def config() -> Callable[..., EnvConfig]:
    return env_config


@pytest.fixture
def make() -> Iterator[Callable[..., VectorEnv]]:
    """`make(id, num_envs, seed=0, **config)` returns environments that are closed after the test."""
    made = []

    def build(id: str, num_envs: int = 1, seed: int = 0, **values: Any) -> VectorEnv:
        made.append(VectorEnv.make(env_config(id, num_envs, **values), np.random.SeedSequence(seed)))
        return made[-1]

    yield build
    for env in made:
        env.close()
