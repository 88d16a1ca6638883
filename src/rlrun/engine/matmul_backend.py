"""Chooses the library that multiplies matrices on this CPU.

By default torch's fp32 products use MKL, which takes its AVX2 path on AMD. oneDNN has an AVX-512 path that is still
exact fp32, and twice as fast on CPUs that execute 512 bits at once. `set_float32_matmul_precision("medium")` makes
torch use oneDNN. On CPUs with AMX this setting would mean bf16, so it is never used there.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from rlrun.operating_system import cpu_information

LARGE = 2e6  # floating-point operations of one product; oneDNN takes 10 us longer to begin, so small products use MKL
ZEN4, LARGE_ON_ZEN4 = r"^cpu family\s*: 25$", 16e6  # Zen 4 executes AVX-512 in two halves: oneDNN gains at most 10%


@cache
def onednn_from() -> float:
    """Returns the number of floating-point operations from which oneDNN is faster for one product.

    It depends on the CPU and on whether torch has oneDNN. It is infinite if oneDNN is never faster or must not be used.
    """
    cpu = cpu_information()
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
    if "AuthenticAMD" not in cpu or not wide or "amx_tile" in cpu:
        return math.inf
    if re.search(ZEN4, cpu, re.MULTILINE):
        return LARGE_ON_ZEN4
    return LARGE


def rule() -> str:
    """Returns the choice as text, for example `mkl`. If the text of two machines differs, their results may differ."""
    if math.isinf(onednn_from()):
        return "mkl"
    return f"onednn from {onednn_from() / 1e6:g} MFLOP"


@contextmanager
def onednn() -> Iterator[None]:
    """A context in which torch uses oneDNN for fp32 products."""
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
