"""Small runs for fault tests, and checks: of the disk after every fault, and bit for bit at the end."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from test_kill_and_resume import rows, snapshot, summary

from rows.processes import Board, Child

COMMON = [
    "preset=none", "logger=[]", "network.hidden=[16]",
    "trainer.eval_episodes=2", "trainer.snapshot_keep=2",
]  # fmt: skip
ON_POLICY = ["algo.epochs=2", "algo.loop.rollout_steps=16"]
OFF_POLICY = ["algo.loop.warmup_steps=100", "algo.loop.batch_size=16", "algo.loop.updates_per_step=0.25"]


def words(total: int, snapshot_every: int, *own: str) -> list[str]:
    """Returns the words of a command; its periods differ, so that snapshots fall between rows."""
    given = {"total_steps": total, "snapshot_every": snapshot_every, "log_every": total // 19, "eval_every": total // 4}
    given |= {"eval_max_steps": 100}
    return [*COMMON, *own, *(f"trainer.{key}={value}" for key, value in given.items())]


RUNS = {
    "sac": words(900, 61, "algo=sac", "env=Hopper", *OFF_POLICY),
    "ppo": words(4000, 250, "algo=ppo", "env=CartPole", *ON_POLICY),
    "dqn": words(1500, 110, "algo=dqn", "env=CartPole", *OFF_POLICY, "algo.buffer.capacity=800"),
    "ppo_lstm": words(3000, 250, "algo=ppo_lstm", "env=CartPole", *ON_POLICY, "network.features=8"),
    "cem": words(16000, 1100, "algo=cem", "env=CartPole"),
}
RUNS["cem"].remove("network.hidden=[16]")  # it is linear
TICK = {"sac": 1, "ppo": 16 * 8, "ppo_lstm": 16 * 8, "dqn": 1, "cem": 16}  # steps
SEGMENT_ROWS = 16  # so that even these runs fill many segments


class Disturbed:
    """One run in a separate folder. again: words that a resume needs too."""

    def __init__(self, folder: Path, start: list[str], again: Sequence[str] = ()):
        self.path, self.start, self.again, self.log = folder, start, again, folder.with_suffix(".log")

    def go(self, prepare: Callable[[Board], object] = lambda board: None) -> Child:
        """Starts the run, or resumes it if it has begun, with the command that a user would type."""
        begun = (self.path / "config.yaml").exists()
        return Child(["resume", str(self.path), *self.again] if begun else self.begin(), self.log, prepare)

    def begin(self) -> list[str]:
        return ["train", *self.start, f"run_dir={self.path}"]

    def latest(self) -> int:
        """Returns the step at which the next process must begin: that of LATEST, or of the newest snapshot if there is
        no LATEST; -1 if the run has not begun."""
        folder = self.path / "snapshots"
        with suppress(OSError, ValueError):
            return int((folder / "LATEST").read_text().removeprefix("step_"))
        steps = [0 if (self.path / "config.yaml").exists() else -1]
        for path in folder.glob("[!.]*/manifest.json"):
            with suppress(ValueError):  # `broken` reports it
                steps.append(json.loads(path.read_bytes())["header"]["step"])
        return max(steps)

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.log.unlink(missing_ok=True)

    def broken(self) -> list[str]:
        """Returns what is wrong on disk. After any fault, snapshots with final names must be whole, LATEST must name
        one of them, and one must be as new as the newest that was reported."""
        folder = self.path / "snapshots"
        if not folder.is_dir():
            return []
        found = [path for path in folder.iterdir() if not path.name.startswith((".", "LATEST"))]
        faults = [f"{path.name}: {fault}" for path in found if (fault := fault_of(path))]
        pointer = folder / "LATEST"
        if pointer.exists() and pointer.read_text().removesuffix("\n") not in {path.name for path in found}:
            faults.append(f"LATEST says {pointer.read_text()!r}")
        return faults

    def differences(self, alone: "Disturbed") -> list[str]:
        """Returns the differences from the undisturbed run, except times."""
        faults = self.broken()
        if rows(self.path) != rows(alone.path):
            faults.append("other rows")
        if (self.path / "metrics.jsonl").read_bytes().count(b"\n") != len(rows(self.path)):
            faults.append("half a row")
        if snapshot(self.path)["digest"] != snapshot(alone.path)["digest"]:
            faults.append("another digest")
        for key in ("status", "step", "total_steps", "final_return", "best_return", "best_step"):
            if summary(self.path)[key] != summary(alone.path)[key]:
                faults.append(f"another {key}")
        return faults


def fault_of(path: Path) -> str:
    """Returns what is wrong with a snapshot, checked without code of rlrun; empty if nothing is."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        for part, facts in manifest["files"].items():
            content = (path / part).read_bytes()
            if (len(content), hashlib.sha256(content).hexdigest()) != (facts["size"], facts["sha256"]):
                return f"{part} differs"
    except (OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def undisturbed(folder: Path, start: list[str]) -> tuple[Disturbed, float, Board]:
    """Returns the undisturbed run, its duration, and its board."""
    alone, began = Disturbed(folder / "alone", start), time.monotonic()
    child = alone.go()
    if child.finish() != 0:
        raise RuntimeError(f"the undisturbed run failed: {child.said()}")
    return alone, time.monotonic() - began, child.board


def setting(start: list[str], key: str) -> Any:
    return next(int(word.partition("=")[2]) for word in start if word.startswith(f"{key}="))
