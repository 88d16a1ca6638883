"""The total memory of the machine, a check that an allocation fits, and a limit for each process."""

import os
import resource
from typing import TYPE_CHECKING

from rlrun.errors import ConfigError

if TYPE_CHECKING:
    import torch


def total(device: "torch.device | None" = None) -> int:
    """Returns the total memory of this machine in bytes, or that of the device if it is a CUDA device."""
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_fits(setting: str, wanted: int, device: "torch.device | None" = None) -> None:
    """Raises ConfigError if a setting (`key=value`) needs more bytes than the total memory. Allocates nothing."""
    there = total(device)
    if wanted > there:
        raise ConfigError(f"{setting}: needs {_gib(wanted)} GiB of memory, but the total is {_gib(there)} GiB")


def limit(count: int) -> None:
    """Limits the private memory of this process to `count` bytes; allocations beyond the limit fail.

    Child processes inherit the limit. It holds for each process separately, not for their sum.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (count, count))


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f}"
