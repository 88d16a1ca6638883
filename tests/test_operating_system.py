"""Import, help and training on systems without `fcntl`, `resource` and the signals of POSIX; locks of other systems."""

import errno
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlrun
from rlrun import lock, operating_system
from rlrun.errors import ConfigError

HOME = str(Path(rlrun.__file__).parents[1])

# Runs at the start of every process, workers included. SIGCHLD and SIGKILL remain, because multiprocessing uses them.
HIDE = """
import os, signal, sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource"):
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Hidden())
for module, names in {
    signal: ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGQUIT", "SIGPIPE", "SIGTSTP", "SIGCONT", "SIGSTOP",
             "pthread_sigmask", "pthread_kill", "alarm", "setitimer", "sigwait", "siginterrupt"),
    os: ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "getloadavg", "sched_getaffinity", "sysconf",
         "pread", "pwrite", "memfd_create"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""

PROGRAM = """
import sys
from pathlib import Path
from rlrun import lock
from rlrun.cli import main
from rlrun.errors import ConfigError
from rlrun.rundir import RunDir

assert not {"fcntl", "resource"} & {*sys.modules}
assert main(["--help"]) == main(["list"]) == main(["status"]) == 0
words = "algo=ppo env=CartPole seed=3 run_dir=r algo.loop.rollout_steps=16 env.num_envs=2 logger=[tensorboard]"
words += " trainer.total_steps=64 trainer.snapshot_every=32 trainer.eval_every=32 trainer.eval_episodes=1"
assert main(["train", *words.split()]) == 0
assert main(["resume", "r", "total_steps=96"]) == 0
held = RunDir.open("r")
assert lock.holder(Path("r")).startswith("pid ")
try:
    RunDir.open("r")
except ConfigError as error:
    print(error)
held.release()
RunDir.open("r").release()
assert lock.holder(Path("r")) is None
assert not {"fcntl", "resource"} & {*sys.modules}
"""


def test_import_help_and_training_without_fcntl_resource_and_posix_signals(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    # subprocess is imported first, because it takes a system with msvcrt for Windows
    windows = f"import errno, subprocess\n\n{inspect.getsource(Windows)}\nsys.modules['msvcrt'] = Windows()\n"
    (tmp_path / "site" / "sitecustomize.py").write_text(HIDE + windows)
    env = os.environ | {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{HOME}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("r is in use by pid ")
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert (summary["status"], summary["step"]) == ("done", 96)
    (resumed,) = json.loads((tmp_path / "r" / "meta.json").read_text())["resumed"]
    assert resumed["verdict"] == "exact"
    rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert rows and not any("sys/rss_mb" in row and row["sys/rss_mb"] <= 0 for row in rows)


class Windows:
    """The locks of msvcrt: each excludes all others, and is refused with EACCES."""

    LK_NBLCK, LK_UNLCK = 1, 2

    def __init__(self) -> None:
        self.held: dict[tuple[int, int, int], int] = {}  # inode and position of a byte -> its descriptor

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        file = os.fstat(descriptor)
        place = file.st_dev, file.st_ino, os.lseek(descriptor, 0, os.SEEK_CUR)
        if mode == self.LK_UNLCK:
            assert self.held.pop(place) == descriptor and count == 1
        elif place in self.held:
            raise PermissionError(errno.EACCES, "Permission denied")
        else:
            self.held[place] = descriptor


def test_lock_uses_msvcrt_where_there_is_no_fcntl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = Windows()
    monkeypatch.setattr(operating_system, "fcntl", None)
    monkeypatch.setattr(operating_system, "msvcrt", windows)
    held = lock.take(tmp_path)
    assert str(lock.holder(tmp_path)).startswith(f"pid {os.getpid()} on "), "the text of a locked file can be read"
    with pytest.raises(ConfigError, match=f"is in use by pid {os.getpid()} on "):
        lock.take(tmp_path)
    lock.release(held)
    assert lock.holder(tmp_path) is None
    with lock.alone(tmp_path / ".starting"):
        assert len(windows.held) == 1
    assert not windows.held and not (tmp_path / ".starting").exists()


def test_a_lock_whose_file_was_closed_by_an_environment_is_released_without_an_error(tmp_path: Path) -> None:
    held = lock.take(tmp_path)
    os.close(held)
    lock.release(held)
    lock.release(lock.take(tmp_path))


def test_blocks_of_several_processes_run_alone(tmp_path: Path) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    code = f"""
import sys, time
from pathlib import Path
from rlrun import lock
count = Path({str(count)!r})
for _ in range(5):
    with lock.alone(count.with_name(".starting")):
        before = int(count.read_text())
        time.sleep(0.002)
        count.write_text(str(before + 1))
"""
    env = os.environ | {"PYTHONPATH": HOME}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert count.read_text() == "15"


def test_memory_and_load_of_a_system_that_reports_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    bare: Any = SimpleNamespace(cpu_count=lambda: 4, name="nt")
    monkeypatch.setattr(operating_system, "os", bare)
    monkeypatch.setattr(operating_system, "resource", None)
    assert operating_system.total_memory() == sys.maxsize
    assert (operating_system.usable_cpus(), operating_system.load_average(1)) == (4, 0.0)
    operating_system.limit_memory(1 << 40)
    operating_system.sync_folder(Path(), lambda descriptor: pytest.fail("a folder is not opened"))


def test_closed_standard_streams_are_the_null_device_for_children_too() -> None:
    code = (
        "import os, sys; from rlrun.operating_system import open_standard_streams; open_standard_streams();"
        "print(sys.stdin.read(), file=sys.stderr);"
        "numbers = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)];"
        "sys.exit(numbers != [0, 1, 2] or not all(map(os.get_inheritable, numbers)))"
    )
    closed = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code]
    assert subprocess.run(closed, env=os.environ | {"PYTHONPATH": HOME}).returncode == 0
