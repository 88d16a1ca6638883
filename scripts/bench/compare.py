"""Whole training runs, rlrun beside its peers, by one clock in the process of each (clocked.py).

What counts is the time between two environment steps, so that imports, warm-up and compiling fall out. rlrun runs as
`rlrun train` does, with metrics and guards on. `NAME@2` is a library on two threads.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.cases import Case

TORCH, MUJOCO = "torch==2.13.0", "gymnasium[mujoco]==1.4.0"
ATARI = ("ale-py==0.12.1", "opencv-python-headless==5.0.0.93")
PEERS: dict[str, tuple[str, ...]] = {  # what is installed for each
    "sb3": (TORCH, MUJOCO, *ATARI, "stable-baselines3==2.9.2"),
    "sbx": (TORCH, MUJOCO, *ATARI, "sbx-rl==0.28.0"),
    "cleanrl": (TORCH, MUJOCO, *ATARI),
    "tianshou": (TORCH, MUJOCO, "tianshou==2.0.1"),
    "torchrl": (TORCH, MUJOCO, "torchrl==0.14.1", "tensordict==0.14.3"),
    "skrl": (TORCH, MUJOCO, "skrl==2.1.1"),
}
CLOCK = Path(__file__).parent / "clocked.py"
SCRIPTS = Path(__file__).parent / "peers"  # one for each, named like it; SBX has SB3's interface
# A process counts the greatest memory of what it was forked from as its own: so a small one starts what is measured.
# Errors go to a file, for a compiler's helpers may outlive their parent a while, and would hold a pipe open.
LAUNCHER = """
import resource, subprocess, sys
with open("errors", "w+") as errors:
    code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=errors).returncode
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
    errors.seek(0)
    sys.exit(errors.read().strip()[-2000:] or str(code) if code else 0)
"""
OWN: dict[str, tuple[str, ...]] = {  # ways to run rlrun
    "rlrun": (),
    "rlrun-compiled": ("trainer.engine=compile",),
    "rlrun-bf16": ("trainer.engine=compile", "trainer.precision=bf16"),
}


def cache() -> Path:
    """Where the peers' environments live."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rlrun-bench"
    return Path(os.environ.get("RLRUN_BENCH_CACHE", default))


def setup(names: list[str], where: Path) -> None:
    """One virtual environment per peer."""
    for name in names or PEERS:
        venv = where / name
        if not (venv / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *PEERS[name]], check=True)


def command(library: str, case: Case, steps: int, where: Path, run: Path) -> list[str]:
    """The interpreter, and the program with its arguments."""
    name, _, threads = library.partition("@")
    if name in OWN:
        words = [f"algo={case.algo}", f"env={case.env}", "preset=none", *case.rlrun, f"trainer.total_steps={steps}"]
        words += ["trainer.eval_every=0", "trainer.eval_episodes=1", "trainer.eval_max_steps=1", f"run_dir={run}"]
        words += [*OWN[name], f"trainer.threads={threads or 1}"]
        return [sys.executable, "-m", "rlrun", "train", *words]
    python = str(where / name / "bin" / "python")
    script = SCRIPTS / f"{'sb3' if name == 'sbx' else name}.py"
    return [python, str(script), name, str(steps), threads or "1", json.dumps(asdict(case))]


def once(library: str, case: Case, where: Path) -> dict[str, float]:
    """Steps per second of wall time and of CPU time, updates a step, seconds until these steps, greatest memory."""
    # what is counted are steps of one environment, or an emulator's frames, four to a step
    one = (4 if case.peer.get("frames") else 1) / int(str(case.peer.get("num_envs", 1)))
    with tempfile.TemporaryDirectory() as folder:
        python, *program = command(library, case, 2 * case.last, where, Path(folder) / "run")
        clock, marks = Path(folder) / "clock", [str(round(one * steps)) for steps in (case.first, case.last)]
        # -P: no script's own folder is imported from, where it may stand beside namesakes of libraries
        clocked = [python, "-P", str(CLOCK), str(clock), *marks, *program]
        environment = os.environ | {"OMP_NUM_THREADS": library.partition("@")[2] or "1", "CUDA_VISIBLE_DEVICES": ""}
        environment["XDG_CONFIG_HOME"] = folder  # rlrun as it comes, without what `doctor --probe` found here
        line = [sys.executable, "-c", LAUNCHER, *clocked]
        done = subprocess.run(line, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or not clock.exists():
            raise SystemExit(f"{library} failed: {done.stderr or 'it ended before its last step'}")
        wall, cpu, start, updates = json.loads(clock.read_text())
    steps = case.last - case.first
    figures = {"steps/s": steps / wall, "steps/cpu-s": steps / cpu, "updates/step": updates / steps, "start s": start}
    return figures | {"MiB": float(done.stdout)}


def timers(case: Case, libraries: Sequence[str], where: Path) -> dict[str, Callable[[], dict[str, float]]]:
    """For every library, what runs it once."""
    return {library: partial(once, library, case, where) for library in libraries}


def pieces(where: Path) -> dict[str, Callable[[], dict[str, float]]]:
    """SB3's pieces by the names of rlrun's, measured by a process that waits between them."""
    command = [str(where / "sb3" / "bin" / "python"), "-P", str(SCRIPTS / "sb3_pieces.py")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=tempfile.gettempdir(),  # where MuJoCo may leave its log
    )  # fmt: skip
    assert process.stdin and process.stdout
    asked, told = process.stdin, process.stdout

    def ask(name: str) -> dict[str, float]:
        print(name, file=asked, flush=True)
        return {"us": float(told.readline())}

    return {name: partial(ask, name) for name in json.loads(told.readline())}
