"""What `rlrun doctor --probe` measures, once for a machine: engines, product paths, threads."""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn

from rlrun.bench.measure import interleaved, microseconds
from rlrun.bench.pieces import Work, one_update
from rlrun.engine import products
from rlrun.engine.machine import LOOPS, Machine
from rlrun.engine.native import Compiled

GAIN = 0.1  # share of an update that compiling must save to be worth other bits
UPDATES_PER_STEP = {"ppo": 10 / 64, "sac": 1.0}  # of the runs whose updates are measured
SIZES = ((64, 64, 64), (64, 256, 256), (256, 256, 256), (32, 3136, 512), (512, 512, 512))  # rows, inputs, outputs
SECONDS, REPEATS = 0.3, 5

Measured = dict[str, float]


def probe() -> Machine:
    """Takes a minute or two: kernels are compiled as if they never had been."""
    with tempfile.TemporaryDirectory() as fresh:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = fresh
        measured = {**gemm(), **engines(), **threads()}
    return Machine.of({loop: pays_from(measured, algo) for loop, algo in LOOPS.items()}, measured)


def pays_from(measured: Measured, algo: str) -> int | None:
    """Steps that a run must have so that compiled updates win back what compiling took, in ten thousands; None where
    they save too little, or nothing could be compiled."""
    if (compiled := measured.get(f"{algo} compiled us")) is None:
        return None
    replayed = measured[f"{algo} replayed us"]
    saved = replayed - compiled
    if saved < GAIN * replayed:
        return None
    steps = measured[f"{algo} compiling s"] / (saved * 1e-6 * UPDATES_PER_STEP[algo])
    return int(-(-steps // 10_000) * 10_000)


def engines() -> Measured:
    """Updates replayed and compiled; the latter are left out where there is no compiler."""
    found: Measured = {}
    for algo in LOOPS.values():
        replayed, _, soon = built(algo, "auto")
        compiled, agent, late = built(algo, "compile")
        works = {"replayed": replayed}
        if is_compiled(agent):
            works["compiled"] = compiled
            found[f"{algo} compiling s"] = round(max(0.0, late - soon), 1)
        found |= {f"{algo} {how} us": value for how, value in medians(works, time.process_time).items()}
    return found


def built(algo: str, engine: str) -> tuple[Work, nn.Module, float]:
    """An update that was done before, its agent, and the seconds until then."""
    began = time.perf_counter()
    _, work, agent = one_update(algo, f"trainer.engine={engine}")
    for _ in range(4):
        work()
    return work, agent, time.perf_counter() - began


def threads() -> Measured:
    """SAC's update by the wall clock: a second thread helps where nothing else runs."""
    work = one_update("sac")[1]

    def on(count: int) -> Callable[[], object]:
        def timed() -> None:
            torch.set_num_threads(count)
            work()

        return timed

    counts = {f"sac {count} threads us": on(count) for count in (1, 2) if count <= (os.cpu_count() or 1)}
    found = medians(counts, time.perf_counter)
    torch.set_num_threads(1)
    return found


def gemm() -> Measured:
    """GFLOP/s of one thread, by size, precision and path."""
    torch.set_num_threads(1)
    return {name: flops / us / 1e3 for name, flops, us in products_timed()}


def products_timed() -> Iterator[tuple[str, float, float]]:
    for rows, inputs, outputs in SIZES:
        first, second = torch.randn(rows, inputs), torch.randn(inputs, outputs)
        half = first.bfloat16(), second.bfloat16()
        works: dict[str, Work] = {
            "fp32": lambda a=first, b=second: torch.mm(a, b),
            "bf16": lambda a=half[0], b=half[1]: torch.mm(a, b),
        }
        if products.onednn_from() < math.inf:
            works["fp32 onednn"] = lambda a=first, b=second: through_onednn(a, b)
        for path, us in medians(works, time.process_time, 0.02).items():
            yield f"{rows}x{inputs}x{outputs} {path} gflops", 2.0 * rows * inputs * outputs, us


def through_onednn(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    with products.onednn():
        return torch.mm(first, second)


def medians(works: dict[str, Work], clock: Callable[[], float], seconds: float = SECONDS) -> Measured:
    timed = {name: (lambda work=work: microseconds(work, seconds, clock)) for name, work in works.items()}
    return {name: round(statistics.median(each), 1) for name, each in interleaved(timed, REPEATS).items()}


def is_compiled(agent: nn.Module) -> bool:
    """Whether its kernels are, and none was given up."""
    made = [one for part in agent.modules() for one in vars(part).values()]
    found = [one for each in made for one in (each, getattr(each, "method", None)) if isinstance(one, Compiled)]
    return bool(found) and not any(kernel.refused or kernel.failed for kernel in found)
