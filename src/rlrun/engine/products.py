"""Which library multiplies matrices on this CPU.

torch's fp32 products go to MKL, which takes its AVX2 path on AMD; oneDNN has an AVX-512 path that is twice as fast and
still exact fp32. torch reaches it by `set_float32_matmul_precision("medium")`. On CPUs with AMX the same word means
bf16, so there it is never said; small products are slower through oneDNN.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

LARGE = 2_000_000  # floating-point operations of one product from which oneDNN wins


@cache
def choose() -> str:
    """The path for large products, a pure function of the CPU: "mkl" or "onednn"."""
    try:
        amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        amd = False
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    amx = torch.cpu._is_amx_tile_supported()
    return "onednn" if amd and wide and not amx and torch.backends.mkldnn.is_available() else "mkl"


@contextmanager
def onednn() -> Iterator[None]:
    """Within, large fp32 products go to oneDNN."""
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
