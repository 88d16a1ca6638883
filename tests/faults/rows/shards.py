"""Workers of shards killed or stopped at random instants, and the run itself: no result changes, no process is left."""

import os
import random
import signal
import time
from contextlib import chdir, suppress
from pathlib import Path

from stores import quick_folder

from rows import Options, Tally
from rows.processes import PATIENCE, Child
from rows.runs import RUNS, Disturbed, undisturbed

KILLS = 100
IN_A_RUN = 5  # kills
PAUSE_S = (0.1, 1.0)  # between two looks
LEFT_S = 10.0  # within which the workers of a run that was killed must have ended
SHARDS = ["env.num_envs=4", "algo.loop.shards=2"]
LOCAL = ["cluster=local", "cluster.state_every=20", "env.timeout_s=3"]
ALGOS = ("ppo", "sac", "dqn")


def workers(pid: int) -> list[int]:
    """Returns the processes that run the shards of a run: grandchildren, started by its server."""
    return [worker for child in children(pid) for worker in children(child)]


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def strike(child: Child, rng: random.Random, kills: int, tally: Tally) -> set[int]:
    """Kills or stops workers while the command runs. Returns all workers that were seen."""
    seen: set[int] = set()
    last = 0  # step at the last strike; three in a row without a step end a run
    while tally.cases < kills and child.wait(rng.uniform(*PAUSE_S)) is None:
        found = workers(child.pid)
        if found and child.board["steps"] > last:
            last = child.board["steps"]
            worker = rng.choice(found)
            stops = rng.random() < 0.1 and worker in seen  # one that starts would be waited for, for a minute
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGSTOP if stops else signal.SIGKILL)
                tally.cases += 1
        seen |= set(found)
    return seen


def lost_workers(options: Options) -> Tally:
    """Kills workers; the run goes on by itself and equals one without workers."""
    tally, rng, count = Tally(), options.random("shards"), options.count or KILLS
    seen: set[int] = set()
    runs = 0
    with quick_folder() as folder, chdir(folder):
        for algo in ALGOS:
            start = [*RUNS[algo], *SHARDS]
            alone, _, _ = undisturbed(folder, start)
            until = count * (ALGOS.index(algo) + 1) // len(ALGOS)
            while tally.cases < until and not tally.failures:
                run = Disturbed(folder / "run", [*start, *LOCAL])
                child = run.go()
                seen |= strike(child, rng, min(until, tally.cases + IN_A_RUN), tally)
                code = child.finish()
                faults = run.differences(alone) if code == 0 else [f"exit code {code}: {child.said()[-500:]}"]
                tally.failures += [f"{algo}: {fault}" for fault in faults]
                runs += 1
                run.clear()
            alone.clear()
        check_left(seen, tally)
    tally.note = f"{runs} runs of {', '.join(ALGOS)}; {len(seen)} workers, none left"
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


def check_left(seen: set[int], tally: Tally) -> None:
    """Adds a failure if workers have not ended in time."""
    until = time.monotonic() + min(LEFT_S, PATIENCE)
    while any(os.path.exists(f"/proc/{pid}") for pid in seen) and time.monotonic() < until:
        time.sleep(0.05)
    left = [pid for pid in seen if os.path.exists(f"/proc/{pid}")]
    tally.expect(not left, f"{len(left)} workers are left")
