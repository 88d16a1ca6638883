"""How this process computes: threads, memory allocator, precision."""

import contextlib
import ctypes
import os

import torch

from rlrun.config.schema import TrainerConfig
from rlrun.errors import ConfigError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
KEEP = 512 * 2**20  # bytes up to which freed memory is kept


def prepare(cfg: TrainerConfig) -> None:
    """Set threads, memory allocator and precision, once, before anything is built.

    One thread unless the config says more: two threads become very slow beside another busy process. Raises ConfigError
    for more threads than cores.
    """
    cores = os.cpu_count() or 1
    if (cfg.threads or 1) > cores:
        raise ConfigError(f"trainer.threads={cfg.threads}: this machine has {cores} cores")
    torch.set_num_threads(cfg.threads or 1)
    # glibc returns freed half-megabyte tensors to the system and faults them in again at every update
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_THRESHOLD, KEEP)
        libc.mallopt(M_TRIM_THRESHOLD, KEEP)
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = cfg.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = cfg.precision == "tf32"
        torch.backends.cudnn.deterministic = True  # equal seeds give equal bits there too
