"""Signals at random instants: the right exit code, a whole snapshot of the last step, and an exact resume."""

import random
import signal
import time
from collections import Counter
from contextlib import chdir

from stores import quick_folder
from test_kill_and_resume import snapshot, summary

from rlrun.snapshot import segments
from rows import Options, Tally
from rows.processes import Child
from rows.runs import RUNS, SEGMENT_ROWS, Disturbed, undisturbed

SIGNALS = 100
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 143, signal.SIGUSR2: 143}
GRACE = 5.0  # seconds
TWICE = 0.2  # fraction of processes that get a second signal immediately


class Stopper:
    """Sends signals to the processes of runs and counts them."""

    def __init__(self, tally: Tally, rng: random.Random):
        self.tally, self.rng = tally, rng
        self.phases: Counter[str] = Counter()
        self.slowest, self.twice, self.runs = 0.0, 0, 0

    def stop(self, algo: str, run: Disturbed, after: float) -> bool:
        """Stops the process. Returns whether it was still running."""
        child, number = run.go(), self.rng.choice([*CODES])
        while child.board["inside"] < 0:
            time.sleep(0.001)
        if child.wait(after) is not None or child.board["inside"] != 1:
            child.finish()
            return False
        phase, sent, twice = child.board.phase(), time.monotonic(), self.rng.random() < TWICE
        child.send(number)
        if twice and child.wait(self.rng.uniform(0, 0.02)) is None:
            child.send(number)
        code = child.finish()
        if summary_status(run) == "done":
            return False  # too late to stop it
        self.tally.cases += 1
        self.twice += twice
        self.phases[phase] += 1
        self.slowest = max(self.slowest, time.monotonic() - sent)
        place = f"{algo}, {number.name}{' twice' * twice} while {phase}"
        self.tally.failures += [f"{place}: {fault}" for fault in self.faults(run, child, CODES[number], twice)]
        self.tally.expect(time.monotonic() - sent < GRACE, f"{place}: took longer than {GRACE} s")
        assert code is not None
        return True

    def faults(self, run: Disturbed, child: Child, expected: int, twice: bool) -> list[str]:
        faults = run.broken()
        if child.code != expected:
            faults.append(f"exit code {child.code} where {expected} was due: {child.said()[-300:]}")
        if "Traceback" in child.said():
            faults.append(f"a traceback: {child.said()[-500:]}")
        if child.board["began"] >= 0 and not twice:
            reached = child.board["steps"]
            if summary_status(run) != "stopped" or summary(run.path)["step"] != reached:
                faults.append(f"the summary does not say that it stopped at step {reached}")
            if snapshot(run.path)["header"]["step"] != reached:
                faults.append(f"no snapshot of step {reached}")
        return faults


def summary_status(run: Disturbed) -> str:
    try:
        return str(summary(run.path)["status"])
    except FileNotFoundError:
        return ""


def random_instants(algos: list[str], options: Options) -> Tally:
    tally, rng, count = Tally(), options.random("signals"), options.count or SIGNALS
    stopper = Stopper(tally, rng)
    segments.SEGMENT_ROWS = SEGMENT_ROWS
    with quick_folder() as folder, chdir(folder):
        for place, algo in enumerate(algos):
            share = count * (place + 1) // len(algos)
            (folder / algo).mkdir()
            alone, seconds, _ = undisturbed(folder / algo, RUNS[algo])
            while tally.cases < share and len(tally.failures) < 20:
                run = Disturbed(folder / algo / "run", RUNS[algo])
                one_run(algo, run, alone, seconds, stopper, share)
    phases = ", ".join(f"{count} {phase}" for phase, count in stopper.phases.most_common())
    tally.note = f"{stopper.runs} runs; {phases}; {stopper.twice} twice; slowest answer {stopper.slowest:.1f} s"
    return tally


def one_run(algo: str, run: Disturbed, alone: Disturbed, seconds: float, stopper: Stopper, share: int) -> None:
    """Stops the run repeatedly, then completes it and compares."""
    while stopper.tally.cases < share and stopper.stop(algo, run, stopper.rng.uniform(0, 0.5 * seconds)):
        pass
    child = run.go()
    code = child.finish()
    faults = run.differences(alone) if code == 0 else [f"exit code {code}: {child.said()[-500:]}"]
    stopper.tally.failures += [f"{algo}: {fault}" for fault in faults]
    stopper.runs += 1
    run.clear()
