"""Workers of shards lost and gained at random instants, and the run itself killed: no result changes, none is left."""

import os
import random
import signal
import time
from contextlib import chdir, suppress
from statistics import median

from stores import quick_folder

from rows import Options, Tally
from rows.machines import Machines, children
from rows.processes import PATIENCE, Child
from rows.runs import ON_POLICY, RUNS, Disturbed, undisturbed, words

KILLS = 100
IN_A_RUN = 5  # kills
PAUSE_S = (0.1, 1.0)  # between two looks
LEFT_S = 10.0  # within which the workers of a run that was killed must have ended
SHARDS = ["env.num_envs=4", "algo.loop.shards=2"]
LOCAL = ["cluster=local", "cluster.state_every=20", "env.timeout_s=3"]
ALGOS = ("ppo", "sac", "dqn")


MACHINES = 3  # most of a Ray cluster, with one CPU each
RAY_RUN = [*words(40_000, 3_000, "algo=ppo", "env=CartPole", *ON_POLICY), "env.num_envs=6", "algo.loop.shards=3"]
RAY = ["cluster=ray", "cluster.state_every=20", "env.timeout_s=20"]


def workers(pid: int) -> list[int]:
    """Returns the processes that run the shards of a run: grandchildren, started by its server."""
    return [worker for child in children(pid) for worker in children(child)]


def next_row_s(run: Disturbed, child: Child, began: float, before: int) -> float | None:
    """Waits for another row than `before`. Returns the seconds since `began`, or None if the run ends before."""
    while num_rows(run) == before and child.wait(0.01) is None:
        if time.monotonic() - began > PATIENCE:
            child.send(signal.SIGKILL)
    if num_rows(run) == before:
        return None
    return time.monotonic() - began


def num_rows(run: Disturbed) -> int:
    with suppress(OSError):
        return (run.path / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


def times_of(found: list[float]) -> str:
    """Returns the median and the most of some times, in seconds."""
    return f"{median(found or [0]):.2f} s, at most {max(found, default=0):.2f}"


class Strikes:
    """Strikes the local workers of a run at random instants."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.seen: set[int] = set()  # workers
        self.times: list[float] = []  # from a kill to the next row, in seconds

    def strike(self, run: Disturbed, child: Child, count: int, tally: Tally) -> None:
        """Kills or stops workers until the run ends, one or two at once; those that start may be late."""
        while tally.cases < count and child.wait(self.rng.uniform(*PAUSE_S)) is None:
            found = set(workers(child.pid))
            old, new = found & self.seen, found - self.seen
            self.seen |= found
            if child.board["steps"] <= 0 or not found:
                continue
            late = [worker for worker in sorted(new) if self.rng.random() < 0.5]
            send(late, signal.SIGSTOP)
            began, before = time.monotonic(), num_rows(run)
            stops = self.rng.random() < 0.1
            struck = self.rng.sample(sorted(old), min(len(old), self.rng.choice([1, 1, 1, 2])))
            send(struck, signal.SIGSTOP if stops else signal.SIGKILL)
            tally.cases += len(struck)
            if late:
                child.wait(self.rng.uniform(*PAUSE_S))
                send(late, signal.SIGCONT)
            time_s = next_row_s(run, child, began, before)
            if struck and not stops and time_s is not None:
                self.times.append(time_s)


class RayStrikes:
    """Strikes the actors of a run and their machines at random instants, and adds machines."""

    def __init__(self, rng: random.Random):
        self.rng, self.machines = rng, Machines()
        self.machines.add()
        self.added = 0
        self.times: dict[str, list[float]] = {"actors killed": [], "machines removed": []}  # to the next row

    def strike(self, run: Disturbed, child: Child, count: int, tally: Tally) -> None:
        """Strikes until the run ends."""
        machines, rng = self.machines, self.rng
        while tally.cases < count and child.wait(rng.uniform(*PAUSE_S)) is None:
            if child.board["steps"] <= 0:
                continue
            actors = machines.actors()
            began, before = time.monotonic(), num_rows(run)
            if len(machines.pids) < MACHINES and rng.random() < 0.5:
                machines.add()
                self.added += 1
                continue
            if len(machines.pids) > 1 and rng.random() < 0.5:
                kind = "machines removed"
                machines.remove(rng.choice(machines.pids))
            elif actors:
                kind = "actors killed"
                send([rng.choice(actors)], signal.SIGKILL)
            else:
                continue
            tally.cases += 1
            time_s = next_row_s(run, child, began, before)
            if time_s is not None:
                self.times[kind].append(time_s)


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def lost_workers(options: Options) -> Tally:
    """Kills workers; the run goes on by itself and equals one without workers."""
    tally, strikes, count = Tally(), Strikes(options.random("shards")), options.count or KILLS
    runs = 0
    with quick_folder() as folder, chdir(folder):
        for algo in ALGOS:
            start = [*RUNS[algo], *SHARDS]
            alone, _, _ = undisturbed(folder, start)
            until = count * (ALGOS.index(algo) + 1) // len(ALGOS)
            while tally.cases < until and not tally.failures:
                run = Disturbed(folder / "run", [*start, *LOCAL])
                child = run.go()
                strikes.strike(run, child, min(until, tally.cases + IN_A_RUN), tally)
                code = child.finish()
                faults = run.differences(alone) if code == 0 else [f"exit code {code}: {child.said()[-500:]}"]
                tally.failures += [f"{algo}: {fault}" for fault in faults]
                runs += 1
                run.clear()
            alone.clear()
        check_left(strikes.seen, tally)
    tally.note = f"{runs} runs of {', '.join(ALGOS)}; {len(strikes.seen)} workers, none left; "
    tally.note += f"next row after {times_of(strikes.times)}"
    return tally


def lost_runs(options: Options) -> Tally:
    """Kills the run itself; its workers end, and the resumed run, with its shards elsewhere, equals one in peace."""
    tally, rng, count = Tally(), options.random("sharded runs"), options.count or KILLS
    seen: set[int] = set()
    with quick_folder() as folder, chdir(folder):
        start = [*RUNS["ppo"], *SHARDS]
        alone, seconds, _ = undisturbed(folder, start)
        while tally.cases < count and not tally.failures:
            place, again = rng.choice([LOCAL, ["cluster=none"]]), rng.choice([LOCAL, ["cluster=none"]])
            run = Disturbed(folder / "run", [*start, *place], again)
            for _ in range(IN_A_RUN):
                child = run.go()
                while child.board["began"] < 0 and child.wait(0.02) is None:
                    pass  # its workers start
                child.wait(rng.uniform(0, 0.5) * seconds)
                seen |= set(workers(child.pid))
                child.send(signal.SIGKILL)
                tally.cases += child.finish() == -signal.SIGKILL
            child = run.go()
            code = child.finish()
            tally.failures += run.differences(alone) if code == 0 else [f"exit code {code}: {child.said()[-500:]}"]
            run.clear()
        check_left(seen, tally)
    tally.note = f"{len(seen)} workers, none left"
    return tally


def lost_actors(options: Options) -> Tally:
    """Kills actors of Ray, removes machines and adds them; the run goes on by itself and equals one without workers."""
    tally, count = Tally(), options.count or KILLS
    strikes = RayStrikes(options.random("ray"))
    runs = 0
    try:
        with quick_folder() as folder, chdir(folder):
            alone, _, _ = undisturbed(folder, RAY_RUN)
            while tally.cases < count and not tally.failures:
                place = [*RAY, f"cluster.address={strikes.machines.address}"]
                run = Disturbed(folder / "run", [*RAY_RUN, *place])
                child = run.go()
                strikes.strike(run, child, count, tally)
                code = child.finish()
                tally.failures += run.differences(alone) if code == 0 else [f"exit code {code}: {child.said()[-500:]}"]
                runs += 1
                run.clear()
    finally:
        strikes.machines.close()
    times = "; ".join(f"{len(found)} {kind}, next row after {times_of(found)}" for kind, found in strikes.times.items())
    tally.note = f"{runs} runs; {strikes.added} machines added; {times}"
    return tally


def check_left(seen: set[int], tally: Tally) -> None:
    """Adds a failure if workers have not ended in time."""
    until = time.monotonic() + min(LEFT_S, PATIENCE)
    while any(os.path.exists(f"/proc/{pid}") for pid in seen) and time.monotonic() < until:
        time.sleep(0.05)
    left = [pid for pid in seen if os.path.exists(f"/proc/{pid}")]
    tally.expect(not left, f"{len(left)} workers are left")
