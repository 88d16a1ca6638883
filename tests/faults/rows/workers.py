"""Workers killed, stopped, slowed, crashed, hanging and raising: no hang, no zombie, no transition lost or doubled."""

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stores import quick_folder
from toys import NO_RAY, NOT_NORMALIZED

from rlrun.envs.config import EnvConfig
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import RunError
from rows import Options, Tally
from rows.fragile import HANG, ID, RAISE, SLEEP, SLOW, WORK
from rows.processes import Child
from rows.runs import Disturbed, undisturbed, words

FAULTS, RAISING, RUNS = 140, 40, 20  # with restart, with raise, in whole runs
ENVS, LENGTH = 4, 5
TIMEOUT, START_UP = 1.5, 30.0  # seconds
KINDS = ("killed", "stopped", "crashed", "slowed", "raising", "sleeping", "hanging")
HARMLESS = ("slowed", "sleeping")


def faults(options: Options) -> Tally:
    tally, rng, count = Tally(), options.random("workers"), options.count
    kinds: Counter[str] = Counter()
    runs = in_runs(rng, RUNS if count is None else max(1, count // 10), tally)  # before the fork server starts
    vector(0, "raise", START_UP).close()  # makes the fork server import what workers need
    pids = replaced(rng, FAULTS if count is None else max(1, count * 7 // 10), kinds, tally)
    pids |= named(rng, RAISING if count is None else max(1, count // 5), kinds, tally)
    slept = time.monotonic()
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < slept + 5:
        time.sleep(0.02)
    left = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    tally.expect(not left, f"{len(left)} workers or zombies are left")
    spread = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    tally.note = f"{spread}; {len(pids)} workers, none left; {runs}"
    return tally


def vector(seed: int, on_failure: str, timeout_s: float = TIMEOUT) -> VectorEnv:
    given: dict[str, Any] = {"backend": "async", "kwargs": {"length": LENGTH}, "wrappers": {}}
    given |= {"eval_kwargs": {}, "normalize": NOT_NORMALIZED, "transforms": [], "ray": NO_RAY}
    given |= {"max_episode_steps": None, "instance_seed": None, "timeout_s": timeout_s, "on_failure": on_failure}
    given |= {
        "action_mask": True,
        "selftest": "auto",
        "log_info": [],
        "executed_action": None,
        "schedule": {},
        "task_kwargs": {},
        "index_kwarg": None,
    }
    env = VectorEnv.make(EnvConfig(id=ID, num_envs=ENVS, **given), np.random.SeedSequence(seed))
    env.reset()
    return env


def inflict(env: VectorEnv, row: int, kind: str, rng: random.Random) -> tuple[int, list[threading.Thread]]:
    """Injects a fault into one worker, now or during the next step. Returns the action, and the injecting threads."""
    pid, number = env.venv.processes[row].pid, {"killed": signal.SIGKILL, "crashed": signal.SIGSEGV}.get(kind)
    delay = rng.choice([0.0, rng.uniform(0, 0.003)])

    def hurt() -> None:
        time.sleep(delay)
        os.kill(pid, number or signal.SIGSTOP)
        if kind == "slowed":
            time.sleep(SLOW)
            os.kill(pid, signal.SIGCONT)

    if kind in ("raising", "sleeping", "hanging"):
        return {"raising": RAISE, "sleeping": SLEEP, "hanging": HANG}[kind], []
    thread = threading.Thread(target=hurt)
    thread.start()
    if not delay and kind != "slowed":
        thread.join()
    return WORK, [thread]


def replaced(rng: random.Random, count: int, kinds: Counter[str], tally: Tally) -> set[int]:
    """With on_failure=restart, every row must follow from its action or be masked, and one row is masked for every lost
    worker."""
    env, pids, done = vector(rng.randrange(1000), "restart"), set[int](), 0
    while done < count:
        pids |= {process.pid for process in env.venv.processes}
        hit = {row: rng.choice(KINDS) for row in range(ENVS) if rng.random() < 0.3}
        actions, threads = torch.zeros(ENVS, dtype=torch.long), list[threading.Thread]()
        for row, kind in hit.items():
            actions[row], more = inflict(env, row, kind, rng)
            threads += more
            kinds[kind] += 1
        done += len(hit)
        lost = {row for row, kind in hit.items() if kind not in HARMLESS}
        began, dropped = time.monotonic(), checked_step(env, actions, tally)
        for thread in threads:
            thread.join()
        dropped |= checked_step(env, torch.zeros(ENVS, dtype=torch.long), tally)  # a late signal has its effect here
        tally.expect(time.monotonic() - began < 4 * TIMEOUT + 3, f"{hit}: {time.monotonic() - began:.1f} s")
        tally.expect(dropped == lost, f"{hit}: rows {dropped} were dropped")
    tally.cases += done
    pids |= {process.pid for process in env.venv.processes}
    env.close()
    return pids


def checked_step(env: VectorEnv, actions: torch.Tensor, tally: Tally) -> set[int]:
    """Returns the masked rows; all others must be the next step of their episode, once each."""
    before, (step, events) = env.obs.clone(), env.step(actions)
    for row in range(ENVS):
        (episode, t), kept = before[row].tolist(), bool(step["weight"][row] == 1)
        ended = not kept or t + 1 == LENGTH
        expected = [episode, t + kept], (t + 1) * kept, ended, [episode, t + 1]
        if ended:
            expected = *expected[:3], [episode + 1, 0] if kept else [0, 0]
        over = bool(step["terminated"][row] | step["truncated"][row])
        found = step["next_obs"][row].tolist(), step["reward"][row].item(), over, step["following"][row].tolist()
        tally.expect(found == expected, f"row {row}: {found} where {expected} was due")
    whole = (sum(range(LENGTH + 1)), LENGTH)
    tally.expect(all(episode[:2] == whole for episode in events.episodes), f"episodes {events.episodes}")
    return {row for row in range(ENVS) if step["weight"][row] == 0}


def named(rng: random.Random, count: int, kinds: Counter[str], tally: Tally) -> set[int]:
    """With on_failure=raise: a one-line error with environment, seed and step, in time, and no worker left."""
    pids = set[int]()
    for _ in range(count):
        env, row, kind = vector(rng.randrange(1000), "raise"), rng.randrange(ENVS), rng.choice(KINDS)
        pids |= {process.pid for process in env.venv.processes}
        actions = torch.zeros(ENVS, dtype=torch.long)
        began, line = time.monotonic(), ""
        actions[row], threads = inflict(env, row, kind, rng)
        try:
            checked_step(env, actions, tally)
            for thread in threads:
                thread.join()
            checked_step(env, torch.zeros(ENVS, dtype=torch.long), tally)
        except RunError as error:
            line = str(error)
        for thread in threads:
            thread.join()
        good = re.fullmatch(rf"env {ID} #{row}, seed {env.seeds[row]}, step [12]: .+", line)
        tally.expect((kind in HARMLESS and not line) or good, f"{kind}: {line!r}")
        tally.expect(time.monotonic() - began < 2 * TIMEOUT + 3, f"{kind}: {time.monotonic() - began:.1f} s")
        kinds[kind] += 1
        tally.cases += 1
        env.close()
    return pids


# --- whole runs ------------------------------------------------------------------------------------------------------

START = words(
    2000, 200, "algo=ppo", "env=CartPole", "algo.epochs=1", "algo.loop.rollout_steps=10", "env.num_envs=2",
    "env.backend=async", "env.timeout_s=5",
)  # fmt: skip


def in_runs(rng: random.Random, count: int, tally: Tally) -> str:
    """One worker of a whole run is killed or stopped. raise: a one-line error, and the resumed run equals an
    undisturbed one. restart: the run completes without a resume."""
    restarted = 0
    with quick_folder() as folder, chdir(folder):
        alone, *_ = undisturbed(folder, START)
        for index in range(count):
            on_failure = ("raise", "restart")[index % 2]
            run = Disturbed(folder / "run", [*START, f"env.on_failure={on_failure}"])
            child, number = run.go(), rng.choice([signal.SIGKILL, signal.SIGSTOP])
            place = f"on_failure={on_failure}, {number.name}"
            hit = hurt_one(child, rng, number)
            code, said = child.finish(), child.said()
            tally.cases += hit
            tally.failures += [f"{place}: {fault}" for fault in run.broken()]
            if on_failure == "restart":
                restarted += hit
                tally.expect(code == 0, f"{place}: exit code {code}: {said[-300:]}")
            elif hit:
                line = re.search(r"^error: env CartPole-v1 #[01], seed \d+, step \d+: its worker .+", said, re.M)
                tally.expect(code == 1 and line, f"{place}: exit code {code}: {said[-300:]}")
            gone_on(place, run, alone, tally, exact=on_failure == "raise")
            run.clear()
    return f"{count} whole runs, {restarted} with restarts"


def gone_on(place: str, run: Disturbed, alone: Disturbed, tally: Tally, exact: bool) -> None:
    child = run.go()
    code = child.finish()
    tally.expect(code == 0, f"{place}: resumed with {code}: {child.said()[-300:]}")
    if exact and code == 0:
        tally.failures += [f"{place}: {fault}" for fault in run.differences(alone)]


def hurt_one(child: Child, rng: random.Random, number: int) -> bool:
    """Kills or stops a worker of a training process. Returns whether one was found."""
    end = time.monotonic() + 30
    while child.board["steps"] < 100 and child.wait(0.005) is None and time.monotonic() < end:
        pass
    if child.wait(rng.uniform(0, 0.3)) is not None:
        return False
    workers = descendants(child.pid)
    if not workers:
        return False
    os.kill(rng.choice(workers), number)
    return True


def descendants(pid: int) -> list[int]:
    """Returns the processes that the fork server of `pid` has forked."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    servers = [child for child, parent in parents.items() if parent == pid]
    return [child for child, parent in parents.items() if parent in servers]
