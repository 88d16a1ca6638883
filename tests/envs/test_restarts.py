"""With env.on_failure=restart, failed environments are created again; no transition is lost, doubled or invented."""

import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import time
from dataclasses import asdict
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import probes
import pytest
import torch
from toys import equal

from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.vector import RESTARTS
from rlrun.envs.stepping.workers import TimedPipe
from rlrun.errors import RunError
from rlrun.nested import index

RESTART = {"on_failure": "restart"}


def zeros(env):
    return torch.zeros(env.num_envs, dtype=torch.long)


def checked_step(env):
    """Takes one step of rlrun/Counter; every row must follow from its action, or be masked."""
    acted_on = env.obs.clone()
    step, events = env.step(zeros(env))
    for row in range(env.num_envs):
        (episode, t), kept = acted_on[row].tolist(), step["weight"][row] == 1
        assert step["next_obs"][row].tolist() == [episode, t + kept], "lost, doubled or invented"
        assert step["reward"][row] == (t + 1) * kept
        ended = bool(step["terminated"][row] | step["truncated"][row])
        assert ended == (not kept or t + 1 == env.length) and not (step["terminated"][row] and not kept)
        if kept:
            assert step["following"][row].tolist() == ([episode + 1, 0] if ended else [episode, t + 1])
        else:
            assert step["following"][row].tolist() == [0, 0]  # an environment that was just created
    assert all(episode[:2] == (sum(range(env.length + 1)), env.length) for episode in events.episodes)
    assert len(events.episodes) == int(((step["terminated"] | step["truncated"]) & (step["weight"] > 0)).sum())
    assert len(events.restarted) >= int((step["weight"] == 0).sum())
    return step, events


def counters(make, num_envs=3, length=5, **values):
    env = make("rlrun/Counter-v0", num_envs, kwargs={"length": length}, **{"backend": "async", **RESTART, **values})
    env.length = length
    env.reset()
    return env


def gone(pid):
    return not os.path.exists(f"/proc/{pid}")


def kill(worker):
    os.kill(worker.pid, signal.SIGKILL)


def stop(worker):
    os.kill(worker.pid, signal.SIGSTOP)


@pytest.mark.parametrize("how", [kill, stop])
def test_restart_replaces_a_killed_or_stopped_worker(make, how):
    env = counters(make, timeout_s=0.5 if how is stop else 10.0)
    old = list(env.venv.processes)
    checked_step(env)
    seed, reason = env.seeds[1], {kill: "died, exit code -9", stop: "gave no answer in 0.5 s"}[how]
    how(old[1])
    step, events = checked_step(env)
    assert step["weight"].tolist() == [1, 0, 1]
    line = f"env rlrun/Counter-v0 #1, seed {seed}, step 2: its worker (pid {old[1].pid}) {reason}; restarted with seed "
    assert events.restarted == [f"{line}{env.seeds[1]}"]
    new = env.venv.processes
    assert gone(old[1].pid) and new[1].is_alive() and [new[0], new[2]] == [old[0], old[2]]
    assert all(step["weight"].all() for step, _ in (checked_step(env) for _ in range(12)))


@pytest.mark.parametrize(
    ("kind", "backend", "reason"),
    [
        ("raise", "sync", "ValueError: this environment raises on purpose"),
        ("raise", "async", "ValueError: this environment raises on purpose"),
        ("exit", "async", "died, exit code 3"),
        ("hang", "async", "gave no answer in 0.5 s"),
    ],
)
def test_restart_replaces_an_environment_that_raises_or_hangs(make, kind, backend, reason):
    timeout_s = 0.5 if kind == "hang" else 10.0
    env = make("rlrun/Faulty-v0", 2, backend=backend, kwargs={"kind": kind, "at": 3}, timeout_s=timeout_s, **RESTART)
    env.reset()
    steps, events = zip(*(env.step(zeros(env)) for _ in range(7)), strict=True)
    dropped = [[0, 0] if t in (2, 5) else [1, 1] for t in range(7)]
    assert [step["weight"].tolist() for step in steps] == dropped
    assert [step["truncated"].tolist() for step in steps] == [[not weight for weight in row] for row in dropped]
    assert [len(found.restarted) for found in events] == [0, 0, 2, 0, 0, 2, 0]
    assert all(f"#{row}" in line and reason in line for row, line in enumerate(events[2].restarted))


@pytest.mark.parametrize("kind", ["raise", "none"])
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_begun_step_equals_a_plain_step(make, kind, backend):
    given = {"kwargs": {"kind": kind, "at": 3}} if kind != "none" else {}
    id = "rlrun/Faulty-v0" if given else "CartPole-v1"
    one, other = make(id, 2, backend=backend, **given, **RESTART), make(id, 2, **given, **RESTART)
    for env in (one, other):
        env.reset()
    for t in range(40):
        one.begin(zeros(one))
        (step, events), (same, expected) = one.step(zeros(one)), other.step(zeros(other))
        assert equal(step, same) and events.episodes == expected.episodes
        if t == 20:  # saved between two steps, when no step is pending
            one.set_extra_state(one.get_extra_state())
            other.set_extra_state(other.get_extra_state())


def test_restart_uses_the_reported_seed_and_leaves_other_environments_alone(make):
    env, twin = (make("CartPole-v1", 2, backend="async", **RESTART) for _ in range(2))
    env.reset(), twin.reset()
    kill(env.venv.processes[1])
    for t in range(40):
        (step, events), (undisturbed, _) = env.step(zeros(env)), twin.step(zeros(env))
        assert equal(index(step, 0), index(undisturbed, 0))
        if t == 0:
            assert events.restarted[0].endswith(f"seed {env.seeds[1]}") and env.seeds[1] != twin.seeds[1]
            alone = make("CartPole-v1")
            alone.seeds = [env.seeds[1]]
            assert torch.equal(step["following"][1], alone.reset()[0])


def test_restart_seeds_follow_from_seed_index_and_step(make):
    seen = []
    for _ in range(2):
        env = make("rlrun/Faulty-v0", 2, kwargs={"kind": "raise", "at": 3}, **RESTART)
        env.reset()
        seen.append([list(env.seeds) for _ in range(7) if env.step(zeros(env))])
    assert seen[0] == seen[1]
    assert len({seed for row in seen[0] for seed in row}) == 6  # two at first, two at each restart


@pytest.mark.parametrize("backend", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_restarts_in_a_row_are_limited(make, backend):
    env = make("rlrun/Faulty-v0", backend=backend, kwargs={"kind": "raise", "at": 1}, **RESTART)
    env.reset()
    for _ in range(RESTARTS):
        assert env.step(zeros(env))[0]["weight"].item() == 0
    with pytest.raises(RunError, match=r"step 11: ValueError: .* on purpose; 10 restarts in a row did not help"):
        env.step(zeros(env))
    if backend == "async":
        assert not any(worker.is_alive() for worker in env.venv.processes)


def test_restarts_of_a_failing_reset_are_limited(make, monkeypatch):
    env = make("rlrun/Counter-v0", 2, **RESTART)
    env.reset()
    monkeypatch.setattr(type(env.pool.slots[0].unwrapped), "reset", lambda self, **_: 1 / 0)
    env.step(zeros(env)), env.step(zeros(env))
    with pytest.raises(RunError, match=r"#0, .*step 3: ZeroDivisionError.* 10 restarts in a row did not help"):
        env.step(zeros(env))  # the third ends the episode, and resets


def test_restart_count_is_reset_by_a_finished_step(make):
    env = make("rlrun/Faulty-v0", kwargs={"kind": "raise", "at": 2}, **RESTART)
    env.reset()
    assert [env.step(zeros(env))[0]["weight"].item() for _ in range(4 * RESTARTS)] == [1, 0] * (2 * RESTARTS)


def test_restart_of_a_worker_that_died_before_a_snapshot(make):
    env = counters(make)
    checked_step(env)
    kill(env.venv.processes[2])
    tree = env.get_extra_state()
    other = counters(make, seed=1)
    other.set_extra_state(tree)
    assert "(#2): its worker" in other.exactness and "died, exit code -9" in other.exactness
    cut, events = other.step(zeros(other))
    assert cut["weight"].tolist() == [1, 1, 0] and cut["following"].tolist()[:2] == [[0, 2], [0, 2]]
    assert cut["next_obs"][2].tolist() == [0, 1] and not events.restarted
    step, events = checked_step(env)
    assert step["weight"].tolist() == [1, 1, 0] and len(events.restarted) == 1
    assert checked_step(env)[0]["weight"].all()


def test_restart_of_a_worker_that_died_before_a_restore_or_reset(make):
    env = counters(make)
    tree = env.get_extra_state()
    kill(env.venv.processes[0])
    env.set_extra_state(tree)
    assert "(#0): its worker" in env.exactness
    assert checked_step(env)[0]["weight"].tolist() == [0, 1, 1]
    kill(env.venv.processes[1])
    env.reset()
    step, events = checked_step(env)
    assert step["weight"].all() and "#1" in events.restarted[0]


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_restarted_environment_is_recorded_for_replay(make, backend):
    env = make("rlrun/Hidden-v0", 2, backend=backend, **RESTART)
    env.reset()
    assert env.method == "replay"
    if backend == "async":
        kill(env.venv.processes[0])
    else:
        env.pool.slots[0].env = None
    assert env.step(zeros(env))[0]["weight"].tolist() == [0, 1]
    other = make("rlrun/Hidden-v0", 2, seed=1)
    other.set_extra_state(env.get_extra_state())
    assert other.exactness == "exact" and torch.equal(
        other.step(zeros(env))[0]["following"], env.step(zeros(env))[0]["following"]
    )


def test_hanging_workers_share_one_timeout(make, monkeypatch):
    env, waits, recv = counters(make, timeout_s=0.5), [], TimedPipe.recv
    for worker in env.venv.processes:
        stop(worker)
    monkeypatch.setattr(TimedPipe, "recv", lambda self, wait=True: waits.append(wait) or recv(self, wait))
    step, _ = checked_step(env)
    assert step["weight"].tolist() == [0, 0, 0] and waits[:3] == [True, False, False]


@pytest.fixture
def pipe():
    """Returns a pipe, with the worker's end as a file descriptor."""
    ours, theirs = Pipe()
    process = SimpleNamespace(pid=7, join=lambda timeout: None, exitcode=None)
    yield TimedPipe(ours, 0, process, 0.2), theirs.fileno()
    ours.close(), theirs.close()


def test_a_worker_stopped_amid_a_message_cannot_hang_the_run(pipe):
    ours, theirs = pipe
    os.write(theirs, struct.pack("!i", 1000) + b"half")
    with pytest.raises(EnvError, match=r"\(pid 7\) gave no answer in 0.2 s"):
        ours.recv()


def test_a_worker_that_does_not_read_cannot_hang_the_run(pipe):
    with pytest.raises(EnvError, match=r"\(pid 7\) gave no answer in 0.2 s"):
        pipe[0].send(np.zeros(10_000_000, np.uint8))


def test_no_worker_outlives_a_run_that_was_killed(config, monkeypatch):
    """One worker is in an endless loop, and one is stopped."""
    script = f"""
        import os, signal
        import probes
        from rlrun.envs.config import EnvConfig
        from rlrun.settings import parse
        from rlrun.envs.making.make import recipe
        from rlrun.envs.stepping.workers import AsyncPool

        if __name__ == "__main__":
            one = recipe(parse(EnvConfig, {asdict(config("rlrun/Faulty-v0", kwargs={"kind": "hang", "at": 1}))}, "env"))
            venv = AsyncPool([one, one.at(1)], 10.0)
            venv.reset()
            print(*(worker.pid for worker in venv.processes), flush=True)
            venv.call(0, "advance", 0)
            venv.call(1, "advance", 0)
            os.kill(venv.processes[1].pid, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    monkeypatch.setenv("PYTHONPATH", str(Path(probes.__file__).parent))
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=30)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    deadline = time.monotonic() + 10
    while not all(map(gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(map(gone, pids))


@pytest.mark.slow
def test_restarts_survive_two_hundred_faults(make):
    """Kills, stops and crashes workers at random, several at once, with saves in between, and checks all rows."""
    env, draw, pids, faults = counters(make, 4, timeout_s=0.3), random.Random(0), set(), 0
    while faults < 200:
        pids |= {worker.pid for worker in env.venv.processes}
        for worker in env.venv.processes:
            if draw.random() < 0.1:
                how = draw.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
                os.kill(worker.pid, how)
                faults += 1
        if draw.random() < 0.1:
            env.get_extra_state()
        checked_step(env)
    env.close()
    assert all(map(gone, pids)) and len(pids) >= 200
