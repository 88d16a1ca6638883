"""What `rlrun doctor --probe` measures, once on a machine: engines, libraries for matrix products, threads."""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from rlrun.bench.measure import interleaved, microseconds
from rlrun.bench.pieces import Work, one_update
from rlrun.engine import matmul_backend
from rlrun.engine.hardware_profile import LOOPS, HardwareProfile
from rlrun.engine.inductor import InductorKernel

GAIN = 0.1  # share of an update that compiling must save to be worth other bits
UPDATES_PER_STEP = {"ppo": 10 / 64, "sac": 1.0}  # of the runs whose updates are measured
SIZES = ((64, 64, 64), (64, 256, 256), (256, 256, 256), (32, 3136, 512), (512, 512, 512))  # rows, inputs, outputs
SECONDS, REPEATS = 0.3, 5

Measured = dict[str, float]  # by name, which ends with the unit


def probe() -> HardwareProfile:
    """Measure this machine. Takes a minute or two, for kernels are compiled without the compiler's cache."""
    with tempfile.TemporaryDirectory() as fresh:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = fresh
        measured = {**gemm(), **engines(), **threads()}
    compile_from = {loop: pays_from(measured, algo) for loop, algo in LOOPS.items()}
    return HardwareProfile.of(compile_from, measured)


def pays_from(measured: Measured, algo: str) -> int | None:
    """Steps of a run, in ten thousands, from which compiled updates save more time than compiling takes. None where
    they save too little, or where nothing was compiled."""
    if (compiled := measured.get(f"{algo} compiled us")) is None:
        return None
    replayed = measured[f"{algo} replayed us"]
    saved = replayed - compiled
    if saved < GAIN * replayed:
        return None
    steps = measured[f"{algo} compiling s"] / (saved * 1e-6 * UPDATES_PER_STEP[algo])
    return int(-(-steps // 10_000) * 10_000)


def engines() -> Measured:
    """CPU microseconds of replayed and of compiled updates, and seconds of compiling. Figures of a compiler that is not
    there are left out."""
    found: Measured = {}
    for algo in LOOPS.values():
        replayed, _, soon = built(algo, "auto")
        compiled, agent, late = built(algo, "compile")
        works = {"replayed": replayed}
        if is_compiled(agent):
            works["compiled"] = compiled
            found[f"{algo} compiling s"] = round(max(0.0, late - soon), 1)
        for how, value in medians(works, time.process_time).items():
            found[f"{algo} {how} us"] = value
    return found


def built(algo: str, engine: str) -> tuple[Work, nn.Module, float]:
    """An update that ran four times already, its agent, and the seconds that this took."""
    began = time.perf_counter()
    _, work, agent = one_update(algo, f"trainer.engine={engine}")
    for _ in range(4):
        work()
    return work, agent, time.perf_counter() - began


def threads() -> Measured:
    """Microseconds of SAC's update by the wall clock: a second thread helps where nothing else runs."""
    work = one_update("sac")[1]

    def work_on(count: int) -> None:
        torch.set_num_threads(count)
        work()

    works: dict[str, Work] = {"sac 1 threads us": partial(work_on, 1)}
    if (os.cpu_count() or 1) > 1:
        works["sac 2 threads us"] = partial(work_on, 2)
    found = medians(works, time.perf_counter)
    torch.set_num_threads(1)
    return found


def gemm() -> Measured:
    """GFLOP/s of one thread, by size, precision and library."""
    torch.set_num_threads(1)
    return {name: flops / us / 1e3 for name, flops, us in products_timed()}


def products_timed() -> Iterator[tuple[str, float, float]]:
    """For each size and library its name, the floating-point operations of one product, and its CPU microseconds."""
    for rows, inputs, outputs in SIZES:
        first = torch.randn(rows, inputs)
        second = torch.randn(inputs, outputs)
        works: dict[str, Work] = {
            "fp32": partial(torch.mm, first, second),
            "bf16": partial(torch.mm, first.bfloat16(), second.bfloat16()),
        }
        if matmul_backend.onednn_from() < math.inf:
            works["fp32 onednn"] = partial(through_onednn, first, second)
        for library, us in medians(works, time.process_time, 0.02).items():
            yield f"{rows}x{inputs}x{outputs} {library} gflops", 2.0 * rows * inputs * outputs, us


def through_onednn(first: Tensor, second: Tensor) -> Tensor:
    """The product of two matrices by oneDNN."""
    with matmul_backend.onednn():
        return torch.mm(first, second)


def medians(works: dict[str, Work], clock: Callable[[], float], seconds: float = SECONDS) -> Measured:
    """Median microseconds of a call of each, measured in turns. `seconds`: how long each is measured in a turn."""
    timed = {name: partial(microseconds, work, seconds, clock) for name, work in works.items()}
    return {name: round(statistics.median(each), 1) for name, each in interleaved(timed, REPEATS).items()}


def is_compiled(agent: nn.Module) -> bool:
    """Whether the kernels of an agent are compiled, and none of them runs as written."""
    found = []
    for part in agent.modules():
        for value in vars(part).values():
            for each in (value, getattr(value, "method", None)):
                if isinstance(each, InductorKernel):
                    found.append(each)
    return bool(found) and not any(kernel.refused or kernel.failed for kernel in found)
