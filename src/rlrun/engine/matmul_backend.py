"""Which library multiplies matrices on this CPU.

torch's fp32 products go to MKL, which takes its AVX2 path on AMD; oneDNN has an AVX-512 path, still exact fp32, that is
twice as fast where AVX-512 is as wide as its name says. torch reaches it by `set_float32_matmul_precision("medium")`.
On CPUs with AMX the same setting means bf16, so it is never used there.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

LARGE = 2e6  # floating-point operations of one product: oneDNN takes 10 us longer to begin
ZEN4, LARGE_ON_ZEN4 = r"^cpu family\s*: 25$", 16e6  # runs AVX-512 in two halves, so that oneDNN gains a tenth at most


@cache
def onednn_from() -> float:
    """Floating-point operations of one product from which oneDNN is faster, a pure function of the CPU; infinite where
    it never is."""
    try:
        cpu = Path("/proc/cpuinfo").read_text()
    except OSError:
        cpu = ""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
    if "AuthenticAMD" not in cpu or not wide or "amx_tile" in cpu:
        return math.inf
    if re.search(ZEN4, cpu, re.MULTILINE):
        return LARGE_ON_ZEN4
    return LARGE


def rule() -> str:
    """The choice in words, for people, and for comparing machines that should give the same bits."""
    if math.isinf(onednn_from()):
        return "mkl"
    return f"onednn from {onednn_from() / 1e6:g} MFLOP"


@contextmanager
def onednn() -> Iterator[None]:
    """A context in which large fp32 products go to oneDNN."""
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
