"""Which library multiplies matrices on this CPU.

torch's fp32 products go to MKL, which takes its AVX2 path on AMD; oneDNN has an AVX-512 path, still exact fp32, that is
twice as fast where AVX-512 is as wide as its name says. torch reaches it by `set_float32_matmul_precision("medium")`.
On CPUs with AMX the same word means bf16, so there it is never said.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

LARGE = 2e6  # floating-point operations of one product, for oneDNN takes 10 us more before it begins
ZEN4, LARGE_ON_ZEN4 = r"^cpu family\s*: 25$", 16e6  # takes AVX-512 in two halves, so that oneDNN gains a tenth at most


@cache
def onednn_from() -> float:
    """Floating-point operations of one product from which oneDNN wins, a pure function of the CPU; else infinite."""
    try:
        cpu = Path("/proc/cpuinfo").read_text()
    except OSError:
        cpu = ""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
    if "AuthenticAMD" not in cpu or not wide or "amx_tile" in cpu:
        return math.inf
    return LARGE_ON_ZEN4 if re.search(ZEN4, cpu, re.MULTILINE) else LARGE


def rule() -> str:
    """For people, and to tell whether another machine gives the same bits."""
    return "mkl" if math.isinf(onednn_from()) else f"onednn from {onednn_from() / 1e6:g} MFLOP"


@contextmanager
def onednn() -> Iterator[None]:
    """Within, large fp32 products go to oneDNN."""
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
