"""Measures the current speed and load of the machine, before and after a measurement.

If the speed of matrix products changed in between, the measurement is marked as noisy.
"""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from rlrun.operating_system import load_average

DRIFT = 0.10  # maximum relative difference between the probes before and after a measurement


@dataclass(frozen=True)
class MachineProbe:
    """Speed and load of the machine at one time."""

    gemm_gflops: float  # matrix product of 512 x 512 in fp32 on one thread, by wall-clock time
    copy_gb_per_s: float  # copy of 64 MiB, bytes read and written
    load: float  # load average over one minute

    @classmethod
    def take(cls) -> "MachineProbe":
        """Measures the machine. Sets torch to one thread."""
        import torch

        torch.set_num_threads(1)
        first, second = torch.randn(512, 512), torch.randn(512, 512)
        source, target = torch.zeros(2**24), torch.zeros(2**24)
        product = min(_seconds(lambda: torch.mm(first, second)) for _ in range(20))
        copy = min(_seconds(lambda: target.copy_(source)) for _ in range(5))
        return cls(2 * 512**3 / product / 1e9, 2 * 2**26 / copy / 1e9, load_average(1))

    @staticmethod
    def crowded(probes: list["MachineProbe"]) -> bool:
        """Returns whether the load exceeded the number of cores in all probes."""
        return min(probe.load for probe in probes) > (os.cpu_count() or 1)

    @staticmethod
    def unsteady(probes: list["MachineProbe"]) -> bool:
        """Returns whether the machine was crowded, or its speed differs by more than `DRIFT` between the probes."""
        speeds = [probe.gemm_gflops for probe in probes]
        return MachineProbe.crowded(probes) or max(speeds) > (1 + DRIFT) * min(speeds)

    def as_json(self) -> dict[str, float]:
        """Returns the figures for records, rounded to two decimals."""
        return {name: round(value, 2) for name, value in asdict(self).items()}


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
