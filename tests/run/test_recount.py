"""Log rows of episodes with scripted ends, beside a count of their steps in NumPy."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlrun
from rlrun.types import Info

ID = "rlrun/Scripted-v0"
TERMINATED, TRUNCATED, BOTH = (True, False), (False, True), (True, True)
# of each environment: the episodes that it repeats, each with its length and its end; at steps 5, 9 and 10 several end
SCRIPTS = (
    ((3, TERMINATED), (2, TRUNCATED), (4, BOTH), (1, TERMINATED)),
    ((5, BOTH), (4, TERMINATED)),
    ((2, TRUNCATED), (3, TERMINATED), (5, TRUNCATED)),
)


class Scripted(gym.Env):
    """Episodes end as in the script. The reward tells the environment, the episode and the step apart."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, index: int = 0):
        self.index, self.episode, self.t = index, -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, Info]:
        self.t += 1
        script = SCRIPTS[self.index]
        length, ends = script[self.episode % len(script)]
        terminated, truncated = ends if self.t == length else (False, False)
        return np.zeros(1, np.float32), reward(self.index, self.episode, self.t), terminated, truncated, {}


def reward(index: int, episode: int, t: int) -> float:
    return 0.5**t + index - 0.125 * episode


def episodes(index: int, steps: int) -> list[tuple[int, float, int]]:
    """Returns (last step, return, length) of the episodes of an environment that end within so many steps."""
    script, found, end = SCRIPTS[index], [], 0
    for episode in range(steps):
        length, _ = script[episode % len(script)]
        end += length
        if end > steps:
            break
        found.append((end, sum(reward(index, episode, t) for t in range(1, length + 1)), length))
    return found


@pytest.fixture
def registered() -> Any:
    gym.register(ID, Scripted)
    yield
    del gym.registry[ID]


@pytest.mark.parametrize("algo", ["a2c", "dqn"])
def test_rows_equal_a_recount_of_scripted_episodes(algo: str, registered: None, tmp_path: Path) -> None:
    num_envs, steps, every = len(SCRIPTS), 40, 4
    words = [
        f"algo={algo}", f"env={ID}", "preset=none", f"env.num_envs={num_envs}", "env.index_kwarg=index",
        "env.backend=sync", "network.hidden=[4]", "logger=[]", "trainer.eval_every=0", "trainer.eval_episodes=0",
        f"trainer.log_every={every * num_envs}", f"trainer.total_steps={steps * num_envs}",
    ]  # fmt: skip
    words += {"a2c": [f"algo.loop.rollout_steps={every}"], "dqn": ["algo.loop.warmup_steps=300"]}[algo]
    rows = rlrun.train(*words, run_dir=str(tmp_path / "run")).rows
    ended = np.array([one for index in range(num_envs) for one in episodes(index, steps)])
    assert [row["step"] for row in rows] == [*range(every * num_envs, steps * num_envs + 1, every * num_envs)]
    for row in rows:
        now = row["step"] // num_envs
        until_now = ended[ended[:, 0] <= now]
        new = until_now[until_now[:, 0] > now - every]
        assert row["train/episodes"] == len(until_now) and len(new) > 0
        assert row["train/return_mean"] == pytest.approx(new[:, 1].mean(), rel=1e-5)
        assert row["train/return_std"] == pytest.approx(new[:, 1].std(), rel=1e-4, abs=1e-5)
        assert (row["train/return_min"], row["train/return_max"]) == pytest.approx((new[:, 1].min(), new[:, 1].max()))
        assert row["train/length_mean"] == pytest.approx(new[:, 2].mean())
        assert row["train/return_smooth"] == pytest.approx(until_now[:, 1].mean(), rel=1e-5)
