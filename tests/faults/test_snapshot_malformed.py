"""Hundreds of malformed snapshots: each gives a one-line error in time, and runs no code.

The snapshots are loaded in a child process with an audit hook, which allows reading files of the run and listing
folders. Everything else (exec, compile, import, sockets, processes, unpickling, writing) is reported as a finding.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import stores
from rows.processes import aside

from rlrun.errors import SnapshotError
from rlrun.snapshot import segments
from rlrun.snapshot.store import Store

LATEST = "step_000000002"
MEMORY = 512  # maximum memory of all of them together, in MiB
SECONDS = 2.0  # maximum memory of one of them, in MiB
HARMLESS = {"os.listdir", "os.scandir", "object.__getattr__", "builtins.id"}


class Watch:
    """Collects findings while `inside` is set to a folder."""

    def __init__(self) -> None:
        self.inside: str | None = None
        self.findings: list[str] = []
        sys.addaudithook(self.see)

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        if self.inside is None or event in HARMLESS:
            return
        if event == "open":
            path, _, flags = args
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            if not writes and (isinstance(path, int) or str(path).startswith(self.inside)):  # a descriptor was open
                return
        self.findings.append(f"{event} {str(args)[:200]}")


def read(run: Path) -> str:
    """Returns the message of a resume about the snapshot, or "" if it loads the snapshot."""
    try:
        snapshot = Store(run).load(LATEST)
        assert snapshot.step
        stores.restored(snapshot)
    except SnapshotError as error:
        return str(error)
    return ""


def judge(base: Path, name: str, change: Any, watch: Watch) -> dict[str, Any]:
    """Creates, loads and removes one malformed snapshot."""
    run = base.with_name(name)
    shutil.copytree(base, run, copy_function=os.link)
    change(run / "snapshots" / LATEST)
    start = time.perf_counter()
    watch.inside = str(run)
    try:
        line = read(run)
    finally:
        watch.inside = None
    seconds, findings = time.perf_counter() - start, watch.findings
    shutil.rmtree(run)
    watch.findings = []
    return {"name": name, "line": line, "seconds": seconds, "findings": findings}


def child(report: str) -> None:
    import malformed

    segments.SEGMENT_ROWS = 16
    os.fsync = lambda descriptor: None
    with stores.quick_folder() as folder:
        (folder / "base").mkdir()
        base = stores.three(folder / "base")
        assert not read(base), "all that is imported late is imported"
        watch = Watch()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        results = [judge(base, "untouched", lambda path: None, watch)]
        results += [judge(base, name, change, watch) for name, change in malformed.cases()]
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        results.append(judge(base, "control", lambda path: None, ControlWatch(watch)))
    Path(report).write_text(json.dumps({"results": results, "memory": (after - before) / 2**10}))


class ControlWatch:
    """Does what no snapshot may do, in the process that loads the others; the hook must report all of it."""

    def __init__(self, watch: Watch):
        self.__dict__["watch"] = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.watch, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.watch, name, value)
        if name == "inside" and value:
            import pickle
            import socket

            exec("1 + 1")
            pickle.loads(pickle.dumps(json.JSONDecoder))
            socket.socket().close()
            subprocess.run(["true"])
            open("/etc/hostname").close()
            open(os.path.join(value, "mine"), "w").close()


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    report = tmp_path_factory.mktemp("malformed") / "report.json"
    aside(partial(child, str(report)))
    found: dict[str, Any] = json.loads(report.read_text())
    found["cases"] = found["results"][1:-1]
    return found


def test_a_snapshot_of_our_own_is_taken_and_the_hook_sees(judged: dict[str, Any]) -> None:
    untouched, control = judged["results"][0], judged["results"][-1]
    assert untouched["line"] == "" and untouched["findings"] == []
    seen = {finding.split()[0] for finding in control["findings"]}
    assert seen >= {"exec", "pickle.find_class", "socket.__new__", "subprocess.Popen", "open"}
    assert sum(finding.startswith("open") for finding in control["findings"]) >= 2


def test_malformed_snapshots_are_refused_with_the_bad_part(judged: dict[str, Any]) -> None:
    assert len(judged["cases"]) >= 300
    assert [one["name"] for one in judged["cases"] if not one["line"]] == []
    for one in judged["cases"]:
        assert one["line"].isprintable() and one["line"].startswith(f"{LATEST}: ") and len(one["line"]) < 300, one


def test_malformed_snapshots_that_are_too_large_are_not_read(judged: dict[str, Any]) -> None:
    large = [one["line"] for one in judged["cases"] if one["name"].startswith("with_much_state")]
    assert len(large) == 6 and all(
        ": more than " in line or " has more than " in line or "(more than " in line for line in large
    )


def test_malformed_snapshots_run_no_code(judged: dict[str, Any]) -> None:
    assert [(one["name"], one["findings"]) for one in judged["cases"] if one["findings"]] == []
    assert not Path("/tmp/rlrun-was-here").exists()


def test_malformed_snapshots_take_little_memory(judged: dict[str, Any]) -> None:
    assert judged["memory"] < MEMORY


@pytest.mark.slow
def test_malformed_snapshots_are_refused_quickly(judged: dict[str, Any]) -> None:
    assert [(one["name"], one["seconds"]) for one in judged["cases"] if one["seconds"] > SECONDS] == []
