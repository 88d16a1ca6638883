"""An error of an environment stops the run with a one-line message that names the place, and leaves no process."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import asdict

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlrun import operating_system
from rlrun.envs.stepping.slot import EnvError, EnvSlot
from rlrun.envs.stepping.workers import AsyncPool
from rlrun.errors import ConfigError, RunError


def until_it_stops(env, steps=20):
    env.reset()
    for _ in range(steps):
        env.step(torch.zeros(env.num_envs, dtype=torch.long))


def processes(env):
    return list(env.venv.processes)


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("raise", "ValueError: this environment raises on purpose"),
        ("leave", "SystemExit: the window is closed"),
        ("nan_obs", "observation[0] is nan"),
        ("nan_reward", "reward is nan"),
    ],
)
def test_a_fault_names_environment_seed_and_step(make, backend, kind, text):
    env = make("rlrun/Faulty-v0", 2, backend=backend, kwargs={"kind": kind, "at": 3})
    seed, workers = env.seeds[0], processes(env) if backend == "async" else []
    with pytest.raises(RunError) as caught:
        until_it_stops(env)
    assert str(caught.value) == f"env rlrun/Faulty-v0 #0, seed {seed}, step 3: {text}"
    if kind == "raise":
        assert "in step" in str(caught.value.__cause__)  # the traceback, for error.log
    assert not any(worker.is_alive() for worker in workers)


class Misleading(gym.Env):
    """Returns observations that are not in its space."""

    action_space, observation_space = gym.spaces.Discrete(2), gym.spaces.Box(0, 255, (3,), np.uint8)

    def __init__(self, shown):
        self.shown = shown

    def reset(self, **_):
        return self.shown, {}


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (np.zeros(1, np.uint8), r"its observation is uint8 \(1,\), but its space declares uint8 \(3,\)"),
        (np.zeros(3, np.float32), r"its observation is float32 \(3,\), but its space declares uint8 \(3,\)"),
    ],
)
def test_an_observation_that_is_not_in_its_space_is_refused(shown, text):
    with pytest.raises(EnvError, match=text):
        EnvSlot(lambda: Misleading(shown), 0).reset()


def test_a_final_observation_that_is_nan_is_found(make):
    env = make("rlrun/Faulty-v0", kwargs={"kind": "nan_obs", "at": 3}, max_episode_steps=3)
    with pytest.raises(RunError, match=r"step 3: final observation\[0\] is nan"):
        until_it_stops(env)


def test_nan_action_is_named_as_the_cause(make):
    env = make("Pendulum-v1", 2)
    env.reset()
    with pytest.raises(RunError, match=r"Pendulum-v1 #1.*action was not finite"):
        env.step(torch.tensor([[0.0], [torch.nan]]))


def test_a_worker_that_dies_in_a_step(make):
    env = make("rlrun/Faulty-v0", 2, backend="async", kwargs={"kind": "exit", "at": 3})
    workers = processes(env)
    with pytest.raises(RunError, match=r"#0, seed \d+, step 3: its worker \(pid \d+\) died, exit code 3"):
        until_it_stops(env)
    assert not any(worker.is_alive() for worker in workers)


def test_a_worker_killed_while_idle(make):
    env = make("rlrun/Endless-v0", 2, backend="async")
    env.reset()
    os.kill(processes(env)[1].pid, signal.SIGKILL)
    with pytest.raises(RunError, match=r"#1, seed \d+, step 1: its worker .* died, exit code -9"):
        env.step(torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize("how", ["hang", "stop"])
def test_worker_that_hangs_raises_after_the_timeout(make, how):
    values = {"id": "rlrun/Faulty-v0", "kwargs": {"kind": "hang", "at": 3}} if how == "hang" else {"id": "CartPole-v1"}
    env = make(**values, num_envs=2, backend="async", timeout_s=0.5)
    workers = processes(env)
    env.reset()
    if how == "stop":
        os.kill(workers[0].pid, signal.SIGSTOP)
    start = time.monotonic()
    with pytest.raises(RunError, match=r"#0, seed \d+, step \d: its worker \(pid \d+\) gave no answer in 0.5 s"):
        for _ in range(3):
            env.step(torch.zeros(2, dtype=torch.long))
    assert time.monotonic() - start < 3 and not any(worker.is_alive() for worker in workers)


def test_a_stopped_worker_cannot_hang_a_snapshot_or_the_end(make):
    env = make("CartPole-v1", 2, backend="async", timeout_s=0.5)
    workers = processes(env)
    env.reset()
    os.kill(workers[1].pid, signal.SIGSTOP)
    with pytest.raises(RunError, match=r"#1, .* gave no answer"):
        env.get_extra_state()
    env.close()
    assert not any(worker.is_alive() for worker in workers)


def test_workers_ignore_signals_of_the_run(make):
    env = make("CartPole-v1", 2, backend="async")
    env.reset()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.kill(processes(env)[0].pid, number)
    env.step(torch.zeros(2, dtype=torch.long))
    assert env.get_extra_state()["envs"] is not None


def test_more_workers_than_fit_into_memory_are_refused_before_one_starts(monkeypatch):
    monkeypatch.setattr(operating_system, "total_memory", lambda: 2**30)
    monkeypatch.setattr("rlrun.envs.stepping.workers.started", lambda *_: pytest.fail("starts a process"))
    line = "^env.backend=async with 4,000 environments: needs 35.2 GiB of memory, but the total is 1.0 GiB$"
    with pytest.raises(ConfigError, match=line):
        AsyncPool([None] * 4000, 10.0)


@pytest.mark.parametrize("end", ["raise SystemExit(5)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_workers_end_with_a_run_that_does_not_close_them(config, end):
    script = f"""
        from rlrun.envs.config import EnvConfig
        from rlrun.settings import parse
        from rlrun.envs.making.make import recipe
        from rlrun.envs.stepping.workers import AsyncPool

        if __name__ == "__main__":
            one = recipe(parse(EnvConfig, {asdict(config("CartPole-v1"))}, "env"))
            venv = AsyncPool([one, one.at(1)], 10.0)
            venv.reset()
            print(*(worker.pid for worker in venv.processes), flush=True)
            {end}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=30)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    deadline = time.monotonic() + 5
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
