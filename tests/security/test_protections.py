"""Every protection of stored runs is switched off once, and its check must then fail."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlrun import errors, files, imports, rundir
from rlrun.cli import main
from rlrun.config import resumable
from rlrun.errors import ConfigError
from rlrun.run import provenance
from rlrun.run import trained as runs
from rlrun.run.job import earlier
from rlrun.rundir import RunDir
from rlrun.snapshot.store import Store
from rlrun.telemetry.metrics import MetricsFile, WrittenRows

SMALL = ["algo=ppo", "env=CartPole", "preset=none", "env.num_envs=1", "network.hidden=[8]", "trainer.eval_episodes=1",
         "algo.loop.rollout_steps=10", "trainer.log_every=10", "env.max_episode_steps=10", "trainer.total_steps=20",
         "logger=[]"]  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("original") / "run"
    assert main(["train", *SMALL, f"run_dir={run}"]) == 0
    return run


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


# Each function returns whether an attack or a mistake succeeded.


def linked_snapshots_are_read(run: Path) -> bool:
    outside = run.with_name("outside")
    (run / "snapshots").rename(outside)
    (run / "snapshots").symlink_to(outside)
    return main(["eval", str(run), "episodes=1"]) == 0


def a_link_is_followed(run: Path) -> bool:
    victim = run.with_name("victim")
    victim.write_text("before")
    (run / "error.log").symlink_to(victim)
    with contextlib.suppress(ConfigError):
        os.close(files.open_to_append(run / "error.log", from_start=True))
    return victim.read_text() != "before"


def too_much_is_read(run: Path) -> bool:
    with (run / "meta.json").open("wb") as file:
        file.truncate(files.JSON_BYTES + 1)
    with contextlib.suppress(ConfigError):
        return len(files.read(run / "meta.json", files.JSON_BYTES)) > 0
    return False


def a_stored_module_is_wanted(run: Path) -> bool:
    values = yaml.safe_load((run / "config.yaml").read_text())
    values["env"]["id"] = "antigravity:CartPole-v1"
    (run / "config.yaml").write_text(yaml.safe_dump(values))
    with contextlib.suppress(ConfigError):
        return runs.stored_config(run).env.id.startswith("antigravity")
    return False


def the_current_folder_can_be_imported(run: Path) -> bool:
    (run / "my_package.py").write_text("")
    with contextlib.chdir(run):
        imports.import_named("my_package", "plugins")
        del sys.modules["my_package"]
        return os.getcwd() in sys.path


def a_filter_of_git_runs(run: Path) -> bool:
    marker = run / "marker"
    own = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(run)]
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["commit", "-qm", "x"],
        ["config", "filter.a.clean", f"touch {marker}"],
    ):
        subprocess.run([*own, *words], check=True)
    (run / ".gitattributes").write_text("* filter=a\n")
    os.utime(run / "config.yaml", (1, 1))  # so that git must look at what it holds
    provenance.git_state(run)
    return marker.exists()


def an_edited_config_is_taken(run: Path) -> bool:
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("gamma: 0.99", "gamma: 0.5"))
    return main(["resume", str(run), "total_steps=40"]) == 0


def lost_rows_are_not_named(run: Path) -> bool:
    metrics = MetricsFile(run / "metrics.jsonl", 20, WrittenRows(7, "0" * 64))
    metrics.close()
    return not metrics.fault


def two_starts_make_two_runs(run: Path) -> bool:
    """Two processes search for a run at the same time; each creates one if it finds none."""
    values: dict[str, Any] = {"name": "one", "run_dir": None, "seed": 0, "plugins": [], "resume": "auto"}
    both_looked = threading.Barrier(2, timeout=0.3)

    def start() -> None:
        with rundir.starting(values):
            found = earlier(values)
            with contextlib.suppress(threading.BrokenBarrierError):
                both_looked.wait()
            if found is None:
                folder = RunDir.create(values)
                folder.write_start(values, [])
                folder.release()

    with contextlib.chdir(run):
        threads = [threading.Thread(target=start) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(list((run / "runs" / "one").glob("*/config.yaml"))) == 2


def control_codes_are_shown(run: Path) -> bool:
    return "\x1b" in str(ConfigError("a\x1b[2J"))


def a_missing_folder_loses_snapshots(run: Path) -> bool:
    store = Store(run, keep=1)
    shutil.rmtree(run / "snapshots")
    with contextlib.suppress(errors.SnapshotError):
        store.save("step_000000030", {}, {}, {"step": 30}, {})
        store.close()
    return not (run / "snapshots" / "step_000000030").exists()


@contextlib.contextmanager
def always_there(module: str) -> Iterator[None]:
    sys.path.append(os.getcwd())
    yield


def git_as_it_is(folder: Path) -> str:
    return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True).stdout


Patch = tuple[Any, str, Any]

PROTECTIONS: dict[Callable[[Path], bool], list[Patch]] = {
    linked_snapshots_are_read: [(files, "check_folder", lambda folder: None)],
    a_link_is_followed: [(files, "open_descriptor", lambda path, flags=0, limit=None: os.open(path, flags))],
    too_much_is_read: [(files, "read", lambda path, limit: path.read_bytes())],
    a_stored_module_is_wanted: [(runs, "module_of", lambda env_id: None)],
    the_current_folder_can_be_imported: [(imports, "_current_folder_for", always_there)],
    a_filter_of_git_runs: [(provenance, "git_state", git_as_it_is)],
    an_edited_config_is_taken: [(resumable, "check_unchanged", lambda run, then: None)],
    lost_rows_are_not_named: [(MetricsFile, "_difference", lambda self, written: "")],
    two_starts_make_two_runs: [(rundir, "starting", lambda config: contextlib.nullcontext())],
    control_codes_are_shown: [(errors, "printable", str)],
    a_missing_folder_loses_snapshots: [(files, "make_folder", lambda path: path)],
}


@pytest.mark.parametrize("attack", PROTECTIONS, ids=lambda attack: attack.__name__)
def test_attack_fails_only_because_of_its_protection(
    attack: Callable[[Path], bool], run: Path, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert not attack(run)
    shutil.rmtree(run.parent)
    shutil.copytree(original, run)
    for home, name, off in PROTECTIONS[attack]:
        monkeypatch.setattr(home, name, off)
    assert attack(run)
