"""A small Slurm: sbatch, squeue, scontrol, scancel and srun over a folder, and a thread that starts the jobs.

For every job the folder holds ID.json (what sbatch read), ID.state, ID.pid (of its step), and ID.requeue if a requeue
was requested.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "srun")
HOME = "FAKE_SLURM"  # variable with the folder
ACTIVE = ("PENDING", "RUNNING")


class FakeSlurm:
    """The scheduler. `slots` jobs run at a time."""

    def __init__(self, folder: Path, slots: int = 2):
        self.folder, self.slots = folder, slots
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for program in PROGRAMS:
            file = self.bin / program
            code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import fake_slurm"
            file.write_text(f"#!{sys.executable} -SE\n{code}; fake_slurm.{program}(sys.argv[1:])\n")
            file.chmod(0o755)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.starts: list[str] = []  # ids, in the order of the starts
        self._open = True
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def jobs(self) -> dict[str, str]:
        """Returns the state of all jobs, by id."""
        return {id: state(self.folder, id) for id in ids(self.folder)}

    def job(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"{id}.json").read_text())
        return found

    def wait(self, ready: Callable[[], bool], timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            assert time.monotonic() < deadline, self.jobs()
            time.sleep(0.01)

    def wait_for_end(self, count: int = 1) -> list[str]:
        """Waits until so many jobs have been submitted and none is active. Returns their states."""
        self.wait(lambda: len(self.jobs()) >= count and not set(ACTIVE) & set(self.jobs().values()))
        return list(self.jobs().values())

    def preempt(self, id: str) -> None:
        """Sends SIGTERM and the signal of --signal to the step, as Slurm does before it takes the node away."""
        name = self.job(id)["options"]["signal"].partition("@")[0]
        pid = int((self.folder / f"{id}.pid").read_text())
        for number in (signal.SIGTERM, signal.Signals[f"SIG{name}"]):
            os.kill(pid, number)

    def lose(self, id: str) -> None:
        """Forgets a job, like a node that died with it."""
        (self.folder / f"{id}.state").write_text("NODE_FAIL")

    def close(self) -> None:
        """Ends all jobs."""
        self._open = False
        self._thread.join()
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _serve(self) -> None:
        while self._open:
            for id in [id for id, process in self.processes.items() if process.poll() is not None]:
                self._end(id, self.processes.pop(id).returncode)
            for id in ids(self.folder):
                if state(self.folder, id) == "PENDING" and self._is_free(id):
                    self._start(id)
            time.sleep(0.02)

    def _is_free(self, id: str) -> bool:
        array, _, _ = id.partition("_")
        running = [other for other in self.processes if other.partition("_")[0] == array]
        return len(self.processes) < self.slots and len(running) < self.job(id)["at_once"]

    def _start(self, id: str) -> None:
        job = self.job(id)
        array, _, task = id.partition("_")
        variables = {"SLURM_JOB_ID": array}
        if task:
            variables |= {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": task}
        (self.folder / f"{id}.state").write_text("RUNNING")
        self.starts.append(id)
        with open(self.folder / f"{id}.out", "ab") as output:
            self.processes[id] = subprocess.Popen(
                ["bash", str(self.folder / f"{array}.sh")], cwd=job["folder"], env=job["environment"] | variables,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def _end(self, id: str, code: int) -> None:
        requeue = self.folder / f"{id}.requeue"
        ended = "FAILED" if code else "COMPLETED"
        if requeue.exists():
            requeue.unlink()
            ended = "PENDING"
        (self.folder / f"{id}.state").write_text(ended)


def ids(folder: Path) -> list[str]:
    return sorted((file.stem for file in folder.glob("*.json")), key=lambda id: [*map(int, id.split("_"))])


def state(folder: Path, id: str) -> str:
    file = folder / f"{id}.state"
    return (file.read_text() if file.exists() else "") or "PENDING"


# --- the programs


def home() -> Path:
    return Path(os.environ[HOME])


def sbatch(words: list[str]) -> None:
    """Queues a script, with a job for each task of its --array."""
    text = Path(words[0]).read_text()
    options = {}
    for line in re.findall(r"^#SBATCH --(.*)$", text, re.MULTILINE):
        key, _, value = shlex.split(line)[0].partition("=")
        options[key] = value
    if options.get("partition") == "full":
        sys.exit("sbatch: error: invalid partition specified: full")
    number = 100 + len(list(home().glob("*.sh")))
    (home() / f"{number}.sh").write_text(text)
    tasks, at_once = [str(number)], 1
    if "array" in options:
        first, last, at_once = map(int, re.split("[-%]", options["array"]))
        tasks = [f"{number}_{task}" for task in range(first, last + 1)]
    job = {"options": options, "at_once": at_once, "folder": os.getcwd(), "environment": dict(os.environ)}
    for task in tasks:
        file = home() / f"{task}.new"
        file.write_text(json.dumps(job))
        file.rename(file.with_suffix(".json"))
    print(f"Submitted batch job {number}")


def squeue(words: list[str]) -> None:
    """Prints the names of active jobs."""
    for id in ids(home()):
        if state(home(), id) in ACTIVE:
            print(json.loads((home() / f"{id}.json").read_text())["options"]["job-name"])


def srun(words: list[str]) -> None:
    """Becomes the step of the job."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    id = f"{array}_{task}" if array else os.environ["SLURM_JOB_ID"]
    (home() / f"{id}.pid").write_text(str(os.getpid()))
    while words[0].startswith("--"):
        has_value = words[0] in ("--output", "--error")
        words = words[1 + has_value :]
    os.execvp(words[0], words)


def scontrol(words: list[str]) -> None:
    assert words[0] == "requeue", words
    (home() / f"{words[1]}.requeue").touch()


def scancel(words: list[str]) -> None:
    """Ends the user's jobs of a name: a running one by SIGTERM to its step."""
    assert words[0] == "--me", words
    name = words[1].removeprefix("--name=")
    for id in ids(home()):
        if json.loads((home() / f"{id}.json").read_text())["options"]["job-name"] != name:
            continue
        if state(home(), id) == "PENDING":
            (home() / f"{id}.state").write_text("CANCELLED")
        elif state(home(), id) == "RUNNING":
            os.kill(int((home() / f"{id}.pid").read_text()), signal.SIGTERM)
