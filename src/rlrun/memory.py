"""The size of memory, a check that something fits into it, and a limit for a process."""

import os
import resource
from typing import TYPE_CHECKING

from rlrun.errors import ConfigError

if TYPE_CHECKING:
    import torch


def total(device: "torch.device | None" = None) -> int:
    """Bytes of this machine's memory, or of a CUDA device's own."""
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_fits(setting: str, wanted: int, device: "torch.device | None" = None) -> None:
    """Raises ConfigError where a setting (`key=value`) needs more bytes than there are, before it allocates."""
    there = total(device)
    if wanted > there:
        raise ConfigError(f"{setting}: takes {_gib(wanted)} GiB of memory, and there are {_gib(there)} GiB")


def limit(count: int) -> None:
    """Limit this process and its children to `count` bytes of private memory; allocating more fails there."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (count, count))


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f}"
