"""Sets how this process computes: threads, memory allocator, precision."""

import contextlib
import ctypes
import os

import torch

from rlrun.errors import ConfigError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
KEEP = 512 * 2**20  # freed memory in bytes that the process keeps for reuse


def prepare(threads: int | None, precision: str) -> None:
    """Sets threads, memory allocator and precision. Called once, before anything is built.

    The default is one thread, because two threads become very slow if another process is busy. Raises ConfigError if
    there are more threads than cores.
    """
    cores = os.cpu_count() or 1
    if (threads or 1) > cores:
        raise ConfigError(f"trainer.threads={threads}: this machine has {cores} cores")
    torch.set_num_threads(threads or 1)
    # by default glibc returns freed tensors of half a megabyte to the system, so each update causes new page faults
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_THRESHOLD, KEEP)
        libc.mallopt(M_TRIM_THRESHOLD, KEEP)
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.deterministic = True  # so that equal seeds give equal bits
