"""Loops that learn from whole episodes give up when no episode ends; a declared time limit makes them wait longer."""

from collections.abc import Iterator
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core import collector
from rlrun.errors import RunError
from rlrun.run.assemble import build_loop

ID = "test/Endless-v0"
VECTORS = "test/Limited-v0"
LOOPS = [
    ["algo=vpg"],
    ["algo=maml"],
    ["algo=cem"],
    ["algo=sac", "algo.loop=offpolicy_episodes", "algo.loop.warmup_steps=4", "algo.loop.batch_size=4"],
    ["algo=ppo_demos", "algo.loop.rollout_steps=8"],
]


class Endless(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Limited(gym.vector.VectorEnv):
    """Cuts its episodes, and takes one more step for the reset."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space, single_action_space = Endless.observation_space, Endless.action_space

    def __init__(self, num_envs: int, max_episode_steps: int):
        self.num_envs, self.limit, self.count = num_envs, max_episode_steps, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        cut = np.full(self.num_envs, self.count % (self.limit + 1) == self.limit)
        return self.reset()[0], np.ones(self.num_envs), np.zeros_like(cut), cut, {}


@pytest.fixture(autouse=True)
def endless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(collector, "LONGEST_EPISODE", 30)
    gym.register(ID, Endless)
    gym.register(VECTORS, vector_entry_point=Limited, max_episode_steps=50)
    yield
    del gym.registry[VECTORS]
    del gym.registry[ID]


def timesteps(ticks: int, *words: str, env: str = ID) -> int:
    """Returns the number of timesteps after so many ticks."""
    words = (*words, f"env={env}", "preset=none", "env.num_envs=2", "env.selftest=off")
    loop = build_loop(run_config(jobs(list(words))[0].values))
    try:
        loop.begin()
        for _ in range(ticks):
            loop.tick()
    finally:
        loop.env.close()
    return loop.steps // 2


@pytest.mark.parametrize("words", [*LOOPS, ["algo=cem", "algo.loop.shards=1"]], ids=str)
def test_loops_of_whole_episodes_give_up_without_an_end(words: list[str]) -> None:
    with pytest.raises(RunError, match=r"no episode has ended in 30 timesteps.*env.max_episode_steps"):
        timesteps(100, *words)


def test_loops_of_whole_episodes_wait_for_a_declared_time_limit() -> None:
    assert timesteps(1, "algo=vpg", "env.max_episode_steps=50", "algo.loop.min_steps=1") == 50
    assert timesteps(1, "algo=vpg", "env.wrappers.time_limit.max_steps=40", "algo.loop.min_steps=1") == 40


@pytest.mark.parametrize("words", [words for words in LOOPS if words[0] in ("algo=cem", "algo=sac")], ids=str)
def test_steps_in_which_a_vector_env_resets_are_within_the_time_limit(words: list[str]) -> None:
    assert timesteps(160, *words, env=VECTORS) == 160
