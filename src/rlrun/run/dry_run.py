"""Builds a run and measures a few seconds of its steps, to estimate its sizes and its time. Writes nothing."""

import dataclasses
import json
import math
import time
from dataclasses import dataclass

import torch
from torch import nn

from rlrun.config.schema import RunConfig, TrainerConfig
from rlrun.core.loop import Loop
from rlrun.envs.saving.examination import verdict_of
from rlrun.envs.saving.selftest import NATIVE, Method
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.indexed import num_bytes
from rlrun.operating_system import resident_mb
from rlrun.run.checkpointer import rings, saved_rings
from rlrun.run.counts import Counts
from rlrun.run.lifecycle import build_new
from rlrun.settings import registry
from rlrun.snapshot import tree
from rlrun.snapshot.segments import describe

MEASURED_S = 3.0  # seconds in which steps with updates are measured; steps of the warm-up take half as long
MEASURED_ROLLOUT = 16_384  # transitions; longer rollouts are shortened to this, and their sizes are scaled
FIRST_UPDATES = 12  # updates that are not measured, because kernels are recorded and checked in their first calls
LOG_ROW_BYTES = 2048  # bytes of a row of metrics.jsonl and of its entries in TensorBoard's file, approximately
SMALL_FILES_BYTES = 32 << 10  # bytes of config, versions and git state
MANIFEST_BYTES = 8 << 10  # bytes of the manifest of a snapshot and of the headers of its files


@dataclass(frozen=True)
class Times:
    """Measured times of one step, in seconds."""

    warmup_step: float  # a step without updates; 0 if the loop has no warm-up
    step: float  # a step with its updates
    warmup_steps: int
    steps: int  # all other steps of the run
    end: Counts  # what the whole run will have done
    first_update: tuple[str, int] = ("", 0)  # as `Loop.first_update`

    @property
    def total(self) -> float:
        """Seconds for the whole run, without evaluations."""
        return self.warmup_steps * self.warmup_step + self.steps * self.step


@dataclass(frozen=True)
class Sizes:
    """Sizes in bytes, at the end of the run."""

    parameters: dict[str, int]  # number of parameters by network; target networks are included
    learned: int  # number of parameters that are learned
    replay: int  # rows of replay; 0 without replay
    saved: int  # rows of replay in one snapshot
    rollout: int  # the batch of the last update; 0 with replay, or if there was no update
    memory: float  # this process; NaN if the system does not report it
    snapshot: int  # one snapshot, without the rows of replay
    disk: int  # the folder of the run, at most


def estimate(config: RunConfig) -> tuple[Sizes, Times]:
    """Returns the estimates for a run. Raises ConfigError if the run could not start."""
    registry.load(config.plugins)
    # the self-test of an environment would store its verdict
    config = dataclasses.replace(config, env=dataclasses.replace(config.env, selftest="off"))
    config, loop = build_new(config)
    if isinstance(loop.env, VectorEnv) and loop.env.pool is not None:  # assumes the method with the largest state
        loop.env.verdict = verdict_of(Method(NATIVE, ""))
    try:
        held = {name: ring.total for name, ring in rings(loop).items()}  # rows that data sets have filled
        first_update = loop.first_update()
        fraction = loop.shorten_rollouts(MEASURED_ROLLOUT)
        times = _times(loop, config.trainer, fraction)
        times = dataclasses.replace(times, first_update=first_update)
        return _sizes(loop, config, held, fraction, times.end), times
    finally:
        loop.env.close()


def num_evaluations(cfg: TrainerConfig, end: Counts) -> int:
    """Returns the number of evaluations of a run. end: what the run will have done."""
    if not cfg.eval_episodes:
        return 0
    if cfg.num_evals is not None:
        return cfg.num_evals
    if not cfg.eval_every:
        return 1
    return math.ceil(getattr(end, cfg.period_unit) / cfg.eval_every)


def _times(loop: Loop, cfg: TrainerConfig, fraction: float) -> Times:
    """Measures the steps of the warm-up, cuts the warm-up short, and measures steps with updates.

    fraction: the fraction of a rollout that a tick collects. The loop must not be trained afterwards, because its
    warm-up has ended too early.
    """
    loop.tick()
    tick_steps = round(loop.steps / fraction)
    total_steps = math.ceil(cfg.total_steps / tick_steps) * tick_steps  # a run ends after a whole rollout
    warmup = min(total_steps, getattr(loop, "start_update", 0))  # only loops with replay have it
    warmup_step = 0.0
    if warmup:
        warmup_step = _seconds_per_step(loop, MEASURED_S / 2, warmup)
        loop.cfg = dataclasses.replace(loop.cfg, warmup_steps=min(warmup, loop.steps), start_update=None)
    until = time.perf_counter() + MEASURED_S
    while loop.updates < FIRST_UPDATES and time.perf_counter() < until:
        loop.tick()
    first_step, first_update = loop.steps, loop.updates
    step = _seconds_per_step(loop, MEASURED_S)
    loop.fetch_episodes()
    updates_per_step = (loop.updates - first_update) / (loop.steps - first_step) * fraction
    if cfg.total_updates is not None and updates_per_step:
        total_steps = min(total_steps, warmup + math.ceil(cfg.total_updates / updates_per_step))
    steps = total_steps - warmup
    episodes = round(len(loop.metrics.episodes) * total_steps / loop.steps)
    end = Counts(total_steps, round(steps * updates_per_step), episodes)
    return Times(warmup_step, step, warmup, steps, end)


def _seconds_per_step(loop: Loop, seconds: float, last_step: float = float("inf")) -> float:
    """Ticks for about this number of seconds, or until a step is reached. Returns the time per step."""
    began = time.perf_counter()
    first_step = loop.steps
    loop.tick()
    while time.perf_counter() < began + seconds and loop.steps < last_step:
        loop.tick()
    if loop.env.device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / (loop.steps - first_step)


def _sizes(loop: Loop, config: RunConfig, held: dict[str, int], fraction: float, end: Counts) -> Sizes:
    """Returns the sizes at the end of the run.

    held: number of rows in each ring before the first step. fraction: the fraction of a rollout that a tick collected.
    end: what the run will have done.
    """
    cfg = config.trainer
    in_snapshots = saved_rings(config, loop)
    replay = 0
    unused = 0  # bytes of replay that are not filled yet
    saved = 0  # `_disk` explains this number and the next two
    appended = 0
    unshared = 0
    for name, ring in rings(loop).items():
        table = describe(ring)
        row_bytes = table.row_bytes
        collected = (ring.total - held[name]) * end.steps // loop.steps
        rows = held[name] + collected  # all rows that are added until the end of the run
        kept = min(rows, ring.capacity)
        replay += round(kept * ring.row_bytes)
        unused += round(max(0, kept - ring.total) * ring.row_bytes)
        if name in in_snapshots:
            saved += kept * row_bytes
            appended += rows * row_bytes
            # snapshots share segments of rows, except the first and the last segment of each snapshot
            unshared += min(kept, 2 * table.segment_rows) * row_bytes
    memory = resident_mb() * 2**20
    if loop.env.device.type == "cpu":
        memory += unused  # the system allocates a page when it is first written
    rollout = 0
    if not replay and loop.batch:
        measured = num_bytes(loop.batch)
        rollout = round(measured / fraction) * (1 + loop.agent.num_kept)
        memory += rollout - measured
    snapshot = _snapshot_bytes(loop)
    learned = sum(weight.numel() for weight in loop.parameters() if weight.requires_grad)
    disk = _disk(cfg, end, snapshot, saved, appended, unshared)
    return Sizes(_parameters(loop), learned, replay, saved, rollout, memory, snapshot, disk)


def _parameters(loop: Loop) -> dict[str, int]:
    """Returns the number of parameters of each network of the agent and of each add-on."""
    parts: list[tuple[str, nn.Module]] = [*loop.agent.named_children()]
    parts += [(type(addon).__name__, addon) for addon in loop.addons.children()]
    counts = {}
    for name, part in parts:
        counts[name] = sum(weight.numel() for weight in part.parameters())
    return {name: count for name, count in counts.items() if count}


def _snapshot_bytes(loop: Loop) -> int:
    skeleton, tensors = tree.encode(loop.state_dict())
    return MANIFEST_BYTES + len(json.dumps(skeleton)) + sum(tensor.nbytes for tensor in tensors.values())


def _disk(cfg: TrainerConfig, end: Counts, snapshot: int, saved: int, appended: int, unshared: int) -> int:
    """Returns the maximum size of a run's folder in bytes.

    end: what the run will have done.
    saved: bytes of the rows in one snapshot. appended: bytes of all rows of the run, which snapshots share.
    unshared: bytes of the rows in one snapshot that no other snapshot shares.
    """
    num_rows = cfg.num_rows or getattr(end, cfg.period_unit) // cfg.log_every
    logs = SMALL_FILES_BYTES + num_rows * LOG_ROW_BYTES
    if cfg.snapshot_every is None:
        return logs
    count = cfg.snapshot_keep + 1  # one more for the best snapshot
    if cfg.num_snapshots is not None:
        count += cfg.num_snapshots
    elif cfg.snapshot_archive_every:
        count += end.steps // cfg.snapshot_archive_every
    return logs + count * snapshot + min(appended + count * unshared, count * saved)
