"""Implements `rlrun train --dry-run`, which estimates the sizes and the time of a run."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlrun.cli.columns import print_columns
from rlrun.errors import RlrunError, RunError
from rlrun.imports import traced
from rlrun.rundir import planned

if TYPE_CHECKING:
    from rlrun.config.jobs import Job

FILES = ("config.yaml", "overrides.yaml", "meta.json", "metrics.jsonl", "summary.json")


def dry_run(found: Sequence["Job"]) -> int:
    """Prints the estimates of every job. Returns the exit code."""
    for i, job in enumerate(found):
        if len(found) > 1:
            print(f"job {i + 1} of {len(found)}: {' '.join(job.words)}")
        print_columns(list(_rows(job)))
    print("nothing was written; times and sizes are estimates")
    return 0


@contextmanager
def _raising_run_errors() -> Iterator[None]:
    """As a context manager, turns an exception of an algorithm or an environment into a RunError of one line."""
    try:
        yield
    except RlrunError:
        raise
    except Exception as error:
        raise RunError(traced(error)) from error


def _rows(job: "Job") -> Iterator[tuple[str, str]]:
    """Yields the rows of a job: name and text of each estimate."""
    folder = planned(job.values)  # before torch is imported, because it may raise ConfigError
    from rlrun.config.schema import run_config
    from rlrun.run.dry_run import MEASURED_S, estimate, num_evaluations
    from rlrun.run.job import earlier
    from rlrun.telemetry.formatting import clock, number, size
    from rlrun.telemetry.hints import start_hint

    config = run_config(job.values)
    cfg = config.trainer
    with _raising_run_errors():
        sizes, times = estimate(config)
    path = None
    if job.values["resume"] == "auto":
        path = earlier(job.values)
    if path is None:
        yield "folder", folder
    else:
        yield "folder", f"{path}, which resume=auto continues; the rest of this table is about a new run"
    files = [*FILES]
    if cfg.snapshot_every is not None:
        files.append("snapshots/")
    if "tensorboard" in config.logger:
        files.append("tb/")
    yield "files", ", ".join(files)
    if sizes.parameters:
        networks = ", ".join(f"{name} {count:,}" for name, count in sizes.parameters.items())
        yield "parameters", f"{networks}; {sizes.learned:,} are learned"
    if sizes.replay:
        yield "replay", f"{size(sizes.replay)} at the end"
    if sizes.rollout:
        yield "rollout", size(sizes.rollout)
    if not math.isnan(sizes.memory):
        yield "memory", f"about {size(sizes.memory)} of this process at the end"
    if cfg.snapshot_every is not None:
        snapshot = f"about {size(sizes.snapshot)}"
        if sizes.saved:
            snapshot += f" and {size(sizes.saved)} of replay, which snapshots share"
        yield "snapshot", snapshot
    yield "disk", f"at most about {size(sizes.disk)} at the end"
    count = times.warmup_steps + times.steps
    steps = f"about {clock(times.total)} for {count:,} step{'s' * (count != 1)} at {number(1 / times.step)} steps/s"
    if times.warmup_steps:
        steps += f", the first {times.warmup_steps:,} at {number(1 / times.warmup_step)} steps/s"
    yield "time", f"{steps}; measured for {MEASURED_S:g} s"
    evaluations = num_evaluations(cfg, times.end)
    if evaluations:
        plural = "s" * (evaluations != 1)
        yield "", f"not included: {evaluations:,} evaluation{plural} of {cfg.eval_episodes:,} episodes"
    if advice := start_hint(*times.first_update, cfg.total_steps):
        yield "hint", advice
