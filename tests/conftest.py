"""What tests of several folders share: configs composed once, environments and loops that are closed after the test."""

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from rlrun.config.jobs import jobs
from rlrun.config.schema import EnvConfig, run_config
from rlrun.core.loop import Loop
from rlrun.core.run import build_loop
from rlrun.envs.vector import VectorEnv

Values = dict[str, Any]


@cache
def _composed(words: tuple[str, ...]) -> Values:
    return jobs(words)[0].values


def put(values: Values, changes: Values) -> Values:
    """A copy of composed values with dotted keys replaced."""
    values = copy.deepcopy(values)
    for key, value in changes.items():
        *path, name = key.split(".")
        section = values
        for part in path:
            section = section[part]
        section[name] = value
    return values


@pytest.fixture
def compose() -> Callable[..., Values]:
    """`compose("algo=sac", "env=Pendulum", {"algo.gamma": 0.9})`: plain values; the words are composed once only."""

    def build(*words: Any) -> Values:
        changes = words[-1] if words and isinstance(words[-1], dict) else {}
        return put(_composed(tuple(word for word in words if isinstance(word, str))), changes)

    return build


@pytest.fixture
def build() -> Iterator[Callable[[Values], Loop]]:
    """A loop from composed values, its first episodes begun unless begin=False."""
    made = []

    def one(values: Values, begin: bool = True) -> Loop:
        made.append(build_loop(run_config(values)))
        if begin:
            made[-1].begin()
        return made[-1]

    yield one
    for loop in made:
        loop.env.close()


@pytest.fixture
def make_env() -> Iterator[Callable[..., VectorEnv]]:
    """`make_env("rlrun/Counter-v0", num_envs, kwargs={"length": 3})`."""
    made = []

    def one(id: str, num_envs: int = 1, seed: int = 0, **given: Any) -> VectorEnv:
        base: Values = {"backend": "sync", "kwargs": {}, "wrappers": {}, "normalize": "none", "timeout_s": 10.0}
        base |= {"max_episode_steps": None, "instance_seed": None}
        made.append(VectorEnv.make(EnvConfig(id=id, num_envs=num_envs, **(base | given)), np.random.SeedSequence(seed)))
        return made[-1]

    yield one
    for env in made:
        env.close()
