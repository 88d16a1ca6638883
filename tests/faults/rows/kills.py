"""kill -9 at random instants: the resumed run equals an uninterrupted run, and few steps are repeated."""

import random
import signal
from collections import Counter
from contextlib import chdir

from stores import quick_folder

from rlrun.snapshot import segments
from rows import Options, Tally
from rows.processes import Child
from rows.runs import RUNS, SEGMENT_ROWS, TICK, Disturbed, setting, undisturbed

KILLS = 200
IN_A_RUN = (5, 8, 12)  # kills
TOO_MANY = 20  # number of failures after which a row stops


class Killer:
    """Kills the processes of one algorithm's runs and counts the kills."""

    def __init__(self, algo: str, tally: Tally, rng: random.Random):
        self.algo, self.tally, self.rng = algo, tally, rng
        self.period = setting(RUNS[algo], "trainer.snapshot_every")
        self.phases: Counter[str] = Counter()
        self.redone = self.most = self.runs = 0

    def kill(self, run: Disturbed, after: float) -> bool:
        """Kills the process. Returns whether it was still running."""
        promised = run.latest()
        child = run.go()
        if child.wait(after) is not None:
            self.check_start(child, promised)
            return False
        phase = child.board.phase()
        child.send(signal.SIGKILL)
        killed = child.finish() == -signal.SIGKILL
        self.check_start(child, promised)
        if not killed:  # it had just ended
            return False
        self.phases[phase] += 1
        self.tally.cases += 1
        for fault in run.broken():
            self.tally.failures.append(f"{self.algo}: after a kill while {phase}: {fault}")
        self.count_redone(child, run.latest())
        return True

    def check_start(self, child: Child, promised: int) -> None:
        """Checks that a process begins at the step of the newest complete snapshot."""
        began = child.board["began"]
        what = f"{self.algo}: step {promised} was on disk, the resume began at {began}: {child.said()[-300:]}"
        self.tally.expect(began in (-1, max(0, promised)), what)

    def count_redone(self, child: Child, latest: int) -> None:
        """Counts the steps that the next process repeats: those since its snapshot, at most two periods (no snapshot
        begins while another is being written) and the tick at their end."""
        lost = max(0, child.board["steps"] - max(0, latest))
        self.redone, self.most = self.redone + lost, max(self.most, lost)
        what = f"{self.algo}: {lost} steps lost, a snapshot every {self.period}"
        self.tally.expect(lost <= 2 * self.period + 2 * TICK[self.algo], what)

    def run(self, run: Disturbed, alone: Disturbed, seconds: float, kills: int) -> None:
        """Kills one run this number of times, then completes it and compares."""
        for _ in range(kills):
            if not self.kill(run, self.rng.uniform(0, 0.5 * seconds)):
                break
        self.finish(run, alone)

    def finish(self, run: Disturbed, alone: Disturbed) -> None:
        promised, child = run.latest(), run.go()
        code = child.finish()
        self.check_start(child, promised)
        faults = run.differences(alone) if code == 0 else [f"exit code {code}: {child.said()[-500:]}"]
        self.tally.failures += [f"{self.algo}: {fault}" for fault in faults]
        self.runs += 1
        run.clear()

    def note(self) -> str:
        phases = ", ".join(f"{count} {phase}" for phase, count in self.phases.most_common())
        return f"{self.runs} runs; {phases}; {self.redone:,} steps redone, {self.most} at most (period {self.period})"


def random_instants(algo: str, options: Options) -> Tally:
    """Kills every run several times, at any instant from its start."""
    tally, rng, count = Tally(), options.random(f"kill {algo}"), options.count or KILLS
    segments.SEGMENT_ROWS = SEGMENT_ROWS
    with quick_folder() as folder, chdir(folder):
        alone, seconds, _ = undisturbed(folder, RUNS[algo])
        killer = Killer(algo, tally, rng)
        while tally.cases < count and len(tally.failures) < TOO_MANY:
            run = Disturbed(folder / "run", RUNS[algo])
            killer.run(run, alone, seconds, min(rng.choice(IN_A_RUN), count - tally.cases))
    tally.note = killer.note()
    return tally
