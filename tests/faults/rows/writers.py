"""Many processes at once: one writer for a run, and one folder for every start."""

import json
import os
import re
import signal
import socket
import time
from contextlib import chdir
from pathlib import Path

from stores import quick_folder

from rlrun.errors import ConfigError
from rlrun.rundir import RunDir
from rows import Options, Tally
from rows.processes import Child
from rows.runs import words

PROCESSES = 64
START = words(60, 30, "algo=ppo", "env=CartPole", "env.num_envs=1", "algo.epochs=1", "algo.loop.rollout_steps=10")
ENDLESS = [word for word in START if "total_steps" not in word] + ["trainer.total_steps=100000000"]


def at_once(options: Options) -> Tally:
    tally, count = Tally(), min(PROCESSES, options.count or PROCESSES)
    with quick_folder() as folder, chdir(folder):
        notes = [two_writers(folder / "two", tally), starts(folder, count, tally)]
        notes += [same_names(folder, count, tally), resumes(folder / "one", count, tally)]
    tally.note = "; ".join(notes)
    return tally


def together(commands: list[list[str]], folder: Path) -> list[Child]:
    """Starts children at the same moment."""
    reader, writer = os.pipe()

    def wait(board: object) -> None:
        os.close(writer)
        os.read(reader, 1)  # closing it starts all children

    children = [Child(command, folder / f"{index}.log", wait) for index, command in enumerate(commands)]
    os.close(writer)
    os.close(reader)
    return children


def two_writers(run: Path, tally: Tally) -> str:
    """While one process trains, another that trains in the same folder or resumes the run gets a one-line error."""
    holder = Child(["train", *ENDLESS, f"run_dir={run}"], run.with_suffix(".log"))
    try:
        until(lambda: holder.board["steps"] > 0)
        for index, command in enumerate((["train", *START, f"run_dir={run}"], ["resume", str(run)])):
            child = Child(command, run.with_name(f"two-{index}.log"))
            code, said = child.finish(), child.said()
            tally.cases += 1
            tally.expect(code == 2 and refused(said), f"{command[0]}: exit code {code}: {said[-300:]}")
        tally.expect(names(said, holder.pid), f"the holder is not named: {said[-300:]}")
    finally:
        holder.send(signal.SIGTERM)
    tally.expect(holder.finish() == 143, f"the holder: {holder.said()[-300:]}")
    return "2 second writers refused"


def starts(folder: Path, count: int, tally: Tally) -> str:
    began = time.monotonic()
    codes = [child.finish() for child in together([["train", *START]] * count, folder)]
    runs = list((folder / "runs").glob("*/*"))
    done = [run for run in runs if (run / "summary.json").exists()]
    tally.cases += count
    tally.expect(codes == [0] * count, f"exit codes {codes}")
    tally.expect(len(runs) == len(done) == count, f"{len(runs)} directories, {len(done)} finished, for {count} starts")
    stamps = {run.name.split("-s")[0] for run in runs}
    return f"{count} starts in {len(stamps)} s, {len(runs)} directories ({time.monotonic() - began:.0f} s)"


def same_names(folder: Path, count: int, tally: Tally) -> str:
    """Starts many runs with few possible names, so that most draws collide."""
    reader, writer = os.pipe()
    draw = os.urandom
    config = {"run_dir": None, "name": "collide", "seed": 0}
    pids = []
    for _ in range(count):
        pids.append(os.fork())
        if not pids[-1]:
            os.urandom = lambda size: bytes(size - 1) + bytes([draw(1)[0] % (2 * count)])
            os.close(writer)
            os.read(reader, 1)
            time.strftime = lambda *_: "20260101-000000"  # type: ignore[assignment]
            try:
                RunDir.create(config)
            except ConfigError:
                os._exit(2)
            os._exit(0)
    os.close(writer)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    os.close(reader)
    made = len(list((folder / "runs" / "collide").glob("*")))
    tally.cases += count
    tally.expect(codes == [0] * count and made == count, f"{made} directories for {count} starts: {codes}")
    return f"{count} with {2 * count} names to draw from"


def resumes(run: Path, count: int, tally: Tally) -> str:
    """One process resumes the run; all others get a one-line error that names this process."""
    first = Child(["train", *ENDLESS, f"run_dir={run}"], run.with_suffix(".log"))
    until((run / "snapshots" / "LATEST").exists)
    first.send(signal.SIGTERM)
    first.finish()
    children = together([["resume", str(run)]] * count, run.parent)
    until(lambda: sum(child.wait(0) is not None for child in children) >= count - 1 or training(children) > 1)
    holders = [child for child in children if child.wait(0) is None]
    for child in holders:
        child.send(signal.SIGTERM)
    stopped = [child.finish() for child in holders]
    losers = [child for child in children if child not in holders]
    tally.cases += count
    tally.expect(stopped == [143], f"{len(holders)} hold the run: {stopped}")
    for child in losers:
        said, good = child.said(), child.code == 2 and refused(child.said())
        tally.expect(good and names(said, holders[0].pid if holders else 0), f"exit code {child.code}: {said[-300:]}")
    step = json.loads((run / "summary.json").read_text())["step"] if holders else 0
    return f"{count} resumes: {len(holders)} holder (to step {step:,}), {len(losers)} one-line refusals"


def training(children: list[Child]) -> int:
    return sum(child.board["began"] >= 0 for child in children)


def refused(said: str) -> bool:
    return len(said.splitlines()) == 1 and said.startswith("error: ")


def names(said: str, pid: int) -> bool:
    return bool(re.search(rf"in use by pid {pid} on {re.escape(socket.gethostname())} since ", said))


def until(ready: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not ready() and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(0.01)
