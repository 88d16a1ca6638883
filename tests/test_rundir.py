import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rlrun import lock, rundir
from rlrun.errors import ConfigError
from rlrun.run import provenance
from rlrun.rundir import RunDir

NAMED = {"run_dir": None, "name": "sac-ALE/Pong:v5", "seed": 3}
SOURCE = str(Path(rundir.__file__).parents[1])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def start(run: RunDir) -> RunDir:
    run.write_start({"seed": 3}, [])
    return run


def test_a_run_is_named_by_time_seed_and_chance():
    run = RunDir.create(NAMED)
    assert re.fullmatch(r"runs/sac-ALE_Pong_v5/\d{8}-\d{6}-s3-[0-9a-f]{4}", run.path.as_posix())
    run.release()


def test_many_starts_in_the_same_second_make_as_many_directories(monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda *_: "20260101-000000")
    chance = iter(bytes([0, n // 2]) for n in range(200))  # every draw comes twice
    monkeypatch.setattr(os, "urandom", lambda _: next(chance))
    runs = []
    threads = [threading.Thread(target=lambda: runs.append(RunDir.create(NAMED))) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({run.path for run in runs}) == 64
    for run in runs:
        run.release()


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_is_no_folder_is_refused(name):
    with pytest.raises(ConfigError, match="name="):
        RunDir.create({**NAMED, "name": name})


def test_run_dir_is_used_as_it_is_and_only_once():
    run = start(RunDir.create({"run_dir": "here/mine"}))
    run.release()
    with pytest.raises(ConfigError, match="already holds a run; to continue it: rlrun resume here/mine"):
        RunDir.create({"run_dir": "here/mine"})
    Path("full").mkdir()
    Path("full/file").touch()
    with pytest.raises(ConfigError, match="run_dir=full is not empty"):
        RunDir.create({"run_dir": "full"})
    with pytest.raises(ConfigError, match="run_dir=full/file"):
        RunDir.create({"run_dir": "full/file"})


def test_a_run_that_came_and_went_while_we_waited_for_the_lock_is_seen(monkeypatch):
    real = lock.take

    def late(path):
        (path / "config.yaml").touch()
        return real(path)

    monkeypatch.setattr(lock, "take", late)
    with pytest.raises(ConfigError, match="already holds a run"):
        RunDir.create({"run_dir": "r"})
    RunDir.open("r").release()


def test_what_is_no_run_cannot_be_opened():
    for path, fault in (("nowhere", "no such folder"), (".", "not a run")):
        with pytest.raises(ConfigError, match=fault):
            RunDir.open(path)


def test_small_files_come_back(tmp_path):
    run = RunDir.create({"run_dir": "r"})
    config = {"seed": 3, "rate": 3e-4, "tiny": 1e-09, "none": None, "id": "on", "net": [64, 64], "again": [64, 64]}
    shared = {"a": 1}
    run.write_start({**config, "x": shared, "y": shared}, ["algo=sac", "env.kwargs.box=true"])
    assert run.config() == {**config, "x": shared, "y": shared}
    assert "&" not in (run.path / "config.yaml").read_text()
    assert (run.path / "overrides.yaml").read_text() == "- algo=sac\n- env.kwargs.box=true\n"
    assert run.read_json("summary.json") == {}
    run.write_json("summary.json", {"step": 1})
    run.write_json("summary.json", {"step": 2})
    assert run.read_json("summary.json") == {"step": 2}
    (run.path / "summary.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"summary.json: cannot be read"):
        run.read_json("summary.json")
    run.error_log("one")
    run.error_log("two\n")
    assert (run.path / "error.log").read_text() == "one\ntwo\n"
    assert sorted(os.listdir(run.path)) == [".lock", "config.yaml", "error.log", "overrides.yaml", "summary.json"]


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcde", "bcdef", strict=True)
)
STRANGE = {
    "alias bomb": (BOMB, "aliases are not allowed"),
    "target": ("net: [{_target_: os.system, command: ls}]", r"net.0._target_: not allowed"),
    "environment": ("name: a${ oc.env:HOME}", "name: environment variables"),
    "python object": ("a: !!python/object/apply:os.system [ls]", "not a config"),
    "no mapping": ("- a", "not a mapping"),
    "broken": ("a: [", "not a config"),
    "deep": ("[" * 100_000, "not a config"),
    "large": ("a: " + "x" * 200_000, "but the limit is"),
    "binary": ("\x00\x01", "not a config"),
    "unhashable": ("? {a: b}\n: c", "not a config"),
}


@pytest.mark.parametrize("text, fault", STRANGE.values(), ids=STRANGE)
def test_a_strange_config_is_refused_in_one_line(text, fault):
    run = start(RunDir.create({"run_dir": "r"}))
    (run.path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=fault) as error:
        run.config()
    assert "\n" not in str(error.value)


def test_opening_sweeps_half_written_files():
    run = start(RunDir.create({"run_dir": "r"}))
    (run.path / ".tmp-summary.json").write_text("{")
    run.release()
    run = RunDir.open("r")
    assert not (run.path / ".tmp-summary.json").exists()
    run.release()


HOLD = """
import os, sys, time
from rlrun.rundir import RunDir
run = RunDir.open(sys.argv[1])
if len(sys.argv) > 2 and os.fork() == 0:
    time.sleep(60)
time.sleep(0.2)  # the forked child gives the lock up
print(os.getpid(), flush=True)
time.sleep(60)
"""


def hold(*arguments: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", HOLD, *arguments]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert int(child.stdout.readline()) == child.pid
    return child


@pytest.mark.parametrize("forked", [False, True])
def test_a_second_process_is_told_who_has_the_run_and_a_kill_frees_it(forked):
    start(RunDir.create({"run_dir": "r"})).release()
    child = hold("r", *["fork"] * forked)
    try:
        holder = rf"^r is in use by pid {child.pid} on {os.uname().nodename} since \d"
        with pytest.raises(ConfigError, match=holder) as error:
            RunDir.open("r")
        assert error.value.exit_code == 2
        child.kill()
        child.wait()
        RunDir.open("r").release()  # at once, and though a forked worker may still live
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.stdout.close()


def test_a_run_is_locked_within_its_process_too_until_released():
    run = start(RunDir.create({"run_dir": "r"}))
    with pytest.raises(ConfigError, match=f"in use by pid {os.getpid()} "):
        RunDir.open("r")
    run.release()
    run.release()
    RunDir.open("r").release()


def test_discard_leaves_nothing():
    run = RunDir.create({"run_dir": "r"})
    run.write_json("meta.json", {})
    run.discard()
    assert not Path("r").exists()
    RunDir.create({"run_dir": "r"}).discard()


def test_provenance_names_versions_and_the_commit(monkeypatch):
    facts = provenance.provenance()
    assert facts["pid"] == os.getpid()
    assert facts["versions"]["torch"]
    assert facts["git"] is None
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    Path("file").touch()
    for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    assert re.fullmatch(r"[0-9a-f]{40}", provenance.git_state(Path.cwd()))
    Path("file").write_text("x")
    Path("below").mkdir()
    assert provenance.git_state(Path("below").resolve()).endswith("-dirty")
    monkeypatch.setenv("PATH", "")
    assert provenance.git_state(Path.cwd()) is None


def test_claiming_a_run_does_not_load_torch():
    check = "import sys, rlrun.rundir; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], env={**os.environ, "PYTHONPATH": SOURCE}, check=True)


def test_a_refused_start_takes_nothing_of_the_user_away(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / ".secret").write_text("x")
    with pytest.raises(ConfigError, match="not empty"):
        RunDir.create({"run_dir": str(folder)})
    assert (folder / ".secret").read_text() == "x"
    (folder / ".secret").unlink()
    run = start(RunDir.create({"run_dir": str(folder)}))
    run.discard()
    assert folder.is_dir() and not list(folder.iterdir())


def test_a_look_at_the_holder_keeps_no_run_from_starting():
    run = start(RunDir.create(NAMED))
    path = run.path
    assert f"pid {os.getpid()}" in lock.holder(path)
    run.release()
    assert lock.holder(path) is None and lock.holder(path / "nowhere") is None
    with (path / rundir.LOCK).open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        let_go = threading.Timer(0.02, lambda: fcntl.flock(looking, fcntl.LOCK_UN))
        let_go.start()
        RunDir.open(path).release()
        let_go.join()


def test_a_name_that_no_disk_takes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^run_dir=n+: File name too long$"):
        RunDir.create({"run_dir": "n" * 300})
