"""Measures whole training runs of rlrun and other libraries (peers), each with clocked.py in its process.

It measures the time between environment steps, after imports, warm-up and compiling. Libraries run in turns of one
second. rlrun runs as `rlrun train`, with logging and checks. `NAME@2` is a library on two threads.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.cases import Case

TORCH, MUJOCO = "torch==2.13.0", "gymnasium[mujoco]==1.4.0"
ATARI = ("ale-py==0.12.1", "opencv-python-headless==5.0.0.93")
PEERS: dict[str, tuple[str, ...]] = {  # packages that are installed for each peer
    "sb3": (TORCH, MUJOCO, *ATARI, "stable-baselines3==2.9.2"),
    "sbx": (TORCH, MUJOCO, *ATARI, "sbx-rl==0.28.0"),
    "cleanrl": (TORCH, MUJOCO, *ATARI),
    "tianshou": (TORCH, MUJOCO, "tianshou==2.0.1"),
    "torchrl": (TORCH, MUJOCO, "torchrl==0.14.1", "tensordict==0.14.3"),
    "skrl": (TORCH, MUJOCO, "skrl==2.1.1"),
}
TURN = 1.0  # seconds
CLOCK = Path(__file__).parent / "clocked.py"
SCRIPTS = Path(__file__).parent / "peers"  # one script for each peer, named like it; SBX uses the script of SB3
# The peak memory of a process includes that of the process from which it was forked. Therefore a small process starts
# the measured one. Errors go to a file, because helpers of a compiler may outlive their parent and keep a pipe open.
LAUNCHER = """
import resource, subprocess, sys
with open("errors", "w+") as errors:
    code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=errors).returncode
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
    errors.seek(0)
    sys.exit(errors.read().strip()[-2000:] or str(code) if code else 0)
"""
OWN: dict[str, tuple[str, ...]] = {  # variants of rlrun, with their settings
    "rlrun": (),
    "rlrun-compiled": ("trainer.engine=compile",),
    "rlrun-bf16": ("trainer.engine=compile", "trainer.precision=bf16"),
}


def cache() -> Path:
    """Returns the folder of the peers' virtual environments."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rlrun-bench"
    return Path(os.environ.get("RLRUN_BENCH_CACHE", default))


def setup(names: list[str], where: Path) -> None:
    """Creates a virtual environment for each peer, and installs the peer."""
    for name in names or PEERS:
        venv = where / name
        if not (venv / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *PEERS[name]], check=True)


def command(library: str, case: Case, steps: int, where: Path, run: Path) -> list[str]:
    """Returns the command of a library's training run: interpreter, program and arguments."""
    name, _, threads = library.partition("@")
    if name in OWN:
        words = [f"algo={case.algo}", f"env={case.env}", "preset=none", *case.rlrun, f"trainer.total_steps={steps}"]
        words += ["trainer.eval_every=0", "trainer.eval_episodes=1", "trainer.eval_max_steps=1", f"run_dir={run}"]
        words += [*OWN[name], f"trainer.threads={threads or 1}"]
        return [sys.executable, "-m", "rlrun", "train", *words]
    python = str(where / name / "bin" / "python")
    script = SCRIPTS / f"{'sb3' if name == 'sbx' else name}.py"
    return [python, str(script), name, str(steps), threads or "1", json.dumps(asdict(case))]


class Run:
    """One run of a library. Once measuring begins, it is stopped except during its turns."""

    def __init__(self, library: str, case: Case, where: Path, times: int):
        # clocked.py counts the steps of one environment; for Atari these are emulator frames, four per step
        one = (4 if case.peer.get("frames") else 1) / int(str(case.peer.get("num_envs", 1)))
        self.library, self.steps, self.times = library, case.steps, times
        self.folder = tempfile.TemporaryDirectory()
        self.clock, folder = Path(self.folder.name) / "clock", self.folder.name
        python, *program = command(library, case, 2 * (case.first + times * case.steps), where, Path(folder) / "run")
        marks = [str(round(one * case.first)), str(round(one * case.steps)), str(times)]
        # -P: import nothing from the folder of a script, which has files with the names of libraries
        clocked = [python, "-P", str(CLOCK), str(self.clock), *marks, *program]
        environment = os.environ | {"OMP_NUM_THREADS": library.partition("@")[2] or "1", "CUDA_VISIBLE_DEVICES": ""}
        environment["XDG_CONFIG_HOME"] = folder  # do not use this machine's results of `rlrun doctor --probe`
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, *clocked], env=environment, cwd=folder, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.turns: list[tuple[float, float]] = []

    def wait(self) -> None:
        """Waits until the run has reached the first measured step, and stops the run."""
        while not self.clock.with_suffix(".ready").exists():
            self.check()
            time.sleep(0.05)
        self.signal(signal.SIGSTOP)

    def turn(self, seconds: float) -> bool:
        """Lets the run continue for `seconds`. Returns whether it has not ended."""
        began = time.perf_counter()
        self.signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.turns.append((began, time.perf_counter()))
        self.check()
        going_on = self.process.returncode is None
        if going_on:
            self.signal(signal.SIGSTOP)
        return going_on

    def figures(self) -> list[dict[str, float]]:
        """Returns the figures of each measured interval: steps per second of wall-clock time and of CPU time.

        Each also has figures of the whole run: updates per step, seconds before the first measured step, peak memory.
        """
        assert self.process.stdout
        marks, updates = json.loads(self.clock.read_text())
        whole = {
            "updates/step": updates / (self.times * self.steps),
            "start s": float(self.clock.with_suffix(".ready").read_text()),
            "MiB": float(self.process.stdout.read()),
        }
        return [
            {"steps/s": self.steps / self.spent(begin, end), "steps/cpu-s": self.steps / (cpu - cpu_before)} | whole
            for (begin, cpu_before), (end, cpu) in itertools.pairwise(marks)
        ]

    def spent(self, begin: float, end: float) -> float:
        """Returns the seconds between two times that belong to turns of this run."""
        return sum(max(0.0, min(end, until) - max(begin, since)) for since, until in self.turns)

    def check(self) -> None:
        """Raises SystemExit if this run has failed."""
        if self.process.poll() is not None and (self.process.returncode or not self.clock.exists()):
            assert self.process.stderr
            raise SystemExit(f"{self.library} failed: {self.process.stderr.read() or 'it ended before its last step'}")

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        with self.process:  # closes its pipes
            self.process.wait()
        self.folder.cleanup()


def race(case: Case, libraries: Sequence[str], where: Path, times: int) -> dict[str, list[dict[str, float]]]:
    """Measures all libraries and returns the figures of each.

    All runs are started, one after the other. Then they continue in turns of a second while the others are stopped, so
    that a temporary slowdown of the machine affects all of them.
    """
    runs: list[Run] = []
    try:
        for library in libraries:
            runs.append(Run(library, case, where, times))
            runs[-1].wait()
        going_on = runs
        while going_on:
            going_on = [run for run in going_on if run.turn(TURN)]
        return {run.library: run.figures() for run in runs}
    finally:
        for run in runs:
            run.close()


def pieces(where: Path) -> dict[str, Callable[[], dict[str, float]]]:
    """Returns functions that measure the pieces of SB3, by rlrun's names of these pieces. A process in SB3's virtual
    environment measures them, and waits in between."""
    command = [str(where / "sb3" / "bin" / "python"), "-P", str(SCRIPTS / "sb3_pieces.py")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=tempfile.gettempdir(),  # MuJoCo may write its log to the current folder
    )  # fmt: skip
    assert process.stdin and process.stdout
    asked, told = process.stdin, process.stdout

    def ask(name: str) -> dict[str, float]:
        print(name, file=asked, flush=True)
        return {"us": float(told.readline())}

    return {name: partial(ask, name) for name in json.loads(told.readline())}
