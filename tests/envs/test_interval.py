"""The wrapper `interval` steps an environment in real time."""

import json
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rlrun
from rlrun.envs.wrappers.interval import Interval
from rlrun.envs.wrappers.wrapper import in_evaluation

SECONDS = 0.02


class Timed(gym.Env[np.ndarray, np.ndarray]):
    """Records when its steps begin; a step takes `busy` seconds."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    busy = 0.0

    def __init__(self) -> None:
        self.began: list[float] = []

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.began.append(time.monotonic())
        time.sleep(self.busy)
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_steps_begin_one_interval_after_the_other() -> None:
    env = Timed()
    wrapped = Interval(Interval.Config(seconds=SECONDS), env)
    for _ in range(21):
        wrapped.step(0)
    periods = np.diff(env.began)
    assert periods.min() >= SECONDS - 1e-4
    assert np.median(periods) == pytest.approx(SECONDS, rel=0.05)


def test_steps_after_a_late_one_do_not_catch_up() -> None:
    env = Timed()
    wrapped = Interval(Interval.Config(seconds=SECONDS), env)
    wrapped.step(0)
    env.busy = 3 * SECONDS
    wrapped.step(0)
    env.busy = 0.0
    for _ in range(3):
        wrapped.step(0)
    late, *periods = np.diff(env.began[1:])
    assert late < 3 * SECONDS + SECONDS / 2, "the late step begins at once"
    assert min(periods) >= SECONDS - 1e-4


def test_a_time_of_another_process_is_not_waited_for() -> None:
    wrapped = Interval(Interval.Config(seconds=SECONDS), Timed())
    wrapped.next_step = time.monotonic() + 2
    began = time.monotonic()
    wrapped.step(0)
    assert time.monotonic() - began < SECONDS


def test_interval_changes_no_result_and_is_left_out_of_evaluations(tmp_path: Path) -> None:
    words = ["algo=ppo", "env=CartPole", "preset=none", "algo.loop.rollout_steps=10", "trainer.eval_every=0",
             "trainer.eval_episodes=0", "logger=[]", "trainer.total_steps=40", "trainer.log_every=20",
             "network.hidden=[8]", "env.num_envs=2"]  # fmt: skip
    plain = rlrun.train(*words, run_dir=str(tmp_path / "plain"))
    run = rlrun.train(*words, "env.wrappers.interval.seconds=0.01", "trainer.stop_at=20", run_dir=str(tmp_path / "run"))
    run.resume()
    assert json.loads((run.path / "meta.json").read_text())["resumed"][0]["verdict"] == "exact"
    assert run.rows[-1]["wall_s"] > 0.18, "ten steps of two environments in each of two rollouts"
    clocks = ("time/", "sys/", "wall_s")
    own, others = (
        [{key: row[key] for key in row if not key.startswith(clocks)} for row in of.rows] for of in (run, plain)
    )
    assert own == others
    assert in_evaluation({"interval": {"seconds": 0.01}}) == {}
