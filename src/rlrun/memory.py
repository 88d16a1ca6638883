"""The total memory of the machine, and a check that an allocation fits."""

from typing import TYPE_CHECKING

from rlrun import operating_system
from rlrun.errors import ConfigError

if TYPE_CHECKING:
    import torch


def total(device: "torch.device | None" = None) -> int:
    """Returns the total memory of this machine in bytes, or that of the device if it is a CUDA device."""
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[1]
    return operating_system.total_memory()


def check_fits(setting: str, wanted: int, device: "torch.device | None" = None) -> None:
    """Raises ConfigError if a setting (`key=value`) needs more bytes than the total memory. Allocates nothing."""
    there = total(device)
    if wanted > there:
        raise ConfigError(f"{setting}: needs {_gib(wanted)} GiB of memory, but the total is {_gib(there)} GiB")


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f}"
