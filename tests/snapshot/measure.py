"""Measures snapshots of SAC on HalfCheetah (17 + 6 floats) with full replay: `python tests/snapshot/measure.py [rows]`.

Prints medians over several snapshots: the training thread's pause, the ticks while the writer works against those while
it does not, bytes and seconds of a write, extra memory, and the time from the start of a process to its first tick.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.run.assemble import build_loop
from rlrun.run.checkpointer import rings
from rlrun.run.trainer import NoCheckpoints, Trainer
from rlrun.rundir import RunDir
from rlrun.snapshot.store import Store, step_name

SNAPSHOTS, TICKS = 7, 400


def begin(rows: int) -> tuple[Any, Any]:
    words = ["algo=sac", "env=HalfCheetah", f"algo.buffer.capacity={rows}", "trainer.total_steps=1e9"]
    job = jobs([*words, "algo.loop.warmup_steps=0", "trainer.eval_every=0"])[0]
    config = run_config(job.values)
    loop = build_loop(config)
    loop.begin()
    return job, (config, loop)


def fill(loop: Any, rows: int) -> None:
    for ring in rings(loop).values():
        for field in ring.memory.values():
            field.normal_()
        ring.total = rows
    loop.steps = loop.updates = rows


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def ticks(loop: Any, seal: Any, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        loop.tick()
        seal()
        taken.append(1e3 * (time.perf_counter() - start))
    return taken


def train(rows: int, folder: Path) -> None:
    job, (config, loop) = begin(rows)
    fill(loop, rows)
    run = RunDir.create({"run_dir": str(folder)})
    run.write_start(job.values, job.words)
    run.write_json("meta.json", {})
    store, kept = Store(folder, keep=2), rings(loop)
    trainer = Trainer(config.trainer, loop, None, None, NoCheckpoints())  # type: ignore[arg-type]

    def seal() -> None:
        store.seal(kept)

    def save() -> float:
        start = time.perf_counter()
        header = {"step": loop.steps, "total_steps": 10**9, "algo": "sac"}
        store.save(step_name(loop.steps), trainer.state(), kept, header, {"wall_s": 0.0})
        return 1e3 * (time.perf_counter() - start)

    ticks(loop, seal, 50)
    before = resident()
    start = time.perf_counter()
    first = save()
    store.wait()
    print(f"first snapshot, nothing sealed before: {first:.0f} ms pause, {time.perf_counter() - start:.2f} s in all")
    pauses, writes, alone, beside, peak = [], [], [], [], before
    for _ in range(SNAPSHOTS):
        alone += ticks(loop, seal, TICKS)
        pauses.append(save())
        start, written = time.perf_counter(), store._under_way.written  # type: ignore[union-attr]
        while not written.done():
            beside += ticks(loop, seal, 1)
            peak = max(peak, resident())
        writes.append(1e3 * (time.perf_counter() - start))
        store.wait()
    median = statistics.median
    print(f"pause {median(pauses):.1f} ms (all: {', '.join(f'{pause:.1f}' for pause in pauses)})")
    print(f"write {median(writes):.0f} ms; new files of the last: {new_bytes(store) / 2**20:.1f} MiB")
    print(f"tick {median(alone):.2f} ms alone, {median(beside):.2f} ms beside the writer (worst {max(beside):.1f})")
    size = sum(f.nbytes for ring in kept.values() for f in ring.memory.values()) / 2**20
    print(f"replay {size:.0f} MiB, resident before {before:.0f} MiB, at most {peak - before:+.0f} MiB while writing")
    store.close()
    loop.env.close()
    run.release()


def new_bytes(store: Store) -> int:
    """Returns the bytes of the newest snapshot that it does not share with another."""
    newest = store.folder / store.names()[0]
    parts = [part.stat() for part in newest.rglob("*") if part.is_file()]
    return sum(part.st_size for part in parts if part.st_nlink == 1)


def resume(folder: Path) -> None:
    """Runs `rlrun resume` up to its first tick."""
    from rlrun.cli import main
    from rlrun.loops.offpolicy import OffPolicy

    real = OffPolicy.tick

    def tick(self: OffPolicy) -> None:
        real(self)
        print(f"first tick at step {self.steps}", flush=True)
        os._exit(0)

    OffPolicy.tick = tick  # type: ignore[method-assign,assignment]
    main(["resume", str(folder), "logger=[]"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["resume"]:
        resume(Path(sys.argv[2]))
    else:
        place = Path(tempfile.mkdtemp()) / "run"
        train(int(sys.argv[1]) if sys.argv[1:] else 1_000_000, place)
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            done = subprocess.run([sys.executable, __file__, "resume", str(place)], capture_output=True, text=True)
            assert "first tick" in done.stdout, done
            taken.append(time.perf_counter() - start)
        print(f"resume to first tick {statistics.median(taken):.2f} s (all: {', '.join(f'{t:.2f}' for t in taken)})")
        shutil.rmtree(place.parent)
