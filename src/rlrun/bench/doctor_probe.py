"""The measurements of `rlrun doctor --probe`, made once per machine: engines, matmul backends and threads."""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from rlrun.bench.measure import interleaved, microseconds
from rlrun.bench.pieces import Work, one_update
from rlrun.engine import matmul_backend
from rlrun.engine.accelerate import MatmulBackend
from rlrun.engine.hardware_profile import LOOPS, HardwareProfile
from rlrun.engine.inductor import InductorKernel

CACHE = "TORCHINDUCTOR_CACHE_DIR"  # environment variable that names the folder of compiled kernels
GAIN = 0.1  # fraction of an update's time that compiling must save, because it changes the bits of the results
UPDATES_PER_STEP = {"ppo": 10 / 64, "sac": 1.0}  # ppo: every step is in 10 epochs of minibatches of 64
SIZES = ((64, 64, 64), (64, 256, 256), (256, 256, 256), (32, 3136, 512), (512, 512, 512))  # rows, inputs, outputs
SECONDS, REPEATS = 0.3, 5

Measured = dict[str, float]  # name that ends with the unit -> value


def probe() -> HardwareProfile:
    """Measures this machine. Takes one to two minutes, because kernels are compiled with an empty compiler cache."""
    with empty_compiler_cache():
        measured = {**gemm(), **engines(), **threads()}
    compile_from = {loop: break_even_steps(measured, algo) for loop, algo in LOOPS.items()}
    return HardwareProfile.of(compile_from, measured)


@contextmanager
def empty_compiler_cache() -> Iterator[None]:
    """A context in which torch's compiler finds no kernels that were compiled before."""
    before = os.environ.get(CACHE)
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ[CACHE] = folder
            yield
    finally:
        os.environ.pop(CACHE, None)
        if before is not None:
            os.environ[CACHE] = before


def break_even_steps(measured: Measured, algo: str) -> int | None:
    """Returns the number of environment steps from which compiled updates save more time than compiling takes.

    The number is rounded up to a multiple of 10,000. It is None if compiled updates save too little, or if nothing was
    compiled.
    """
    compiled = measured.get(f"{algo} compiled us")
    if compiled is None:
        return None
    replayed = measured[f"{algo} replayed us"]
    saved = replayed - compiled
    if saved < GAIN * replayed:
        return None
    steps = measured[f"{algo} compiling s"] / (saved * 1e-6 * UPDATES_PER_STEP[algo])
    return math.ceil(steps / 10_000) * 10_000


def engines() -> Measured:
    """Measures the CPU microseconds of updates with recorded kernels (trainer.engine=auto) and with compiled ones, and
    the seconds of compiling. Without a working compiler, only those with recorded kernels are measured."""
    found: Measured = {}
    for algo in LOOPS.values():
        replayed, _, replayed_s = built(algo, "auto")
        compiled, agent, compiled_s = built(algo, "compile")
        works = {"replayed": replayed}
        if is_compiled(agent):
            works["compiled"] = compiled
            found[f"{algo} compiling s"] = round(max(0.0, compiled_s - replayed_s), 1)
        for how, value in medians(works, time.process_time).items():
            found[f"{algo} {how} us"] = value
    return found


def built(algo: str, engine: str) -> tuple[Work, nn.Module, float]:
    """Returns an update after four warm-up calls, its agent, and the seconds that building and warm-up took."""
    began = time.perf_counter()
    _, work, agent = one_update(algo, f"trainer.engine={engine}")
    for _ in range(4):
        work()
    return work, agent, time.perf_counter() - began


def threads() -> Measured:
    """Measures SAC's update in wall-clock microseconds with one and two threads, on an otherwise idle machine."""
    _, work, _ = one_update("sac")

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
    """Measures the GFLOP/s of matrix products on one thread, by size, precision and library."""
    torch.set_num_threads(1)
    found: Measured = {}
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
            flops = 2.0 * rows * inputs * outputs
            found[f"{rows}x{inputs}x{outputs} {library} gflops"] = flops / us / 1e3
    return found


def through_onednn(first: Tensor, second: Tensor) -> Tensor:
    """Returns the product of two matrices, computed by oneDNN."""
    with matmul_backend.onednn():
        return torch.mm(first, second)


def medians(works: dict[str, Work], clock: Callable[[], float], seconds: float = SECONDS) -> Measured:
    """Returns the median microseconds per call of each work, by name.

    The works take turns: in each of `REPEATS` rounds, each of them is called for `seconds`.
    """
    timed = {name: partial(microseconds, work, seconds, clock) for name, work in works.items()}
    return {name: round(statistics.median(values), 1) for name, values in interleaved(timed, REPEATS).items()}


def is_compiled(agent: nn.Module) -> bool:
    """Returns whether the agent has compiled kernels and none of them fell back to eager execution."""
    found = []
    for part in agent.modules():
        for value in vars(part).values():
            if isinstance(value, MatmulBackend):
                value = value.method
            if isinstance(value, InductorKernel):
                found.append(value)
    return bool(found) and not any(kernel.refused or kernel.failed for kernel in found)
