"""The speed of the machine at a moment: printed with every figure, and the reason why some figures do not count."""

import os
import time
from dataclasses import asdict, dataclass

DRIFT = 0.10  # by how much the probes around a measurement may differ


@dataclass(frozen=True)
class Probe:
    """Speeds and load of the machine, measured in a moment."""

    gemm_gflops: float  # one product of 512 x 512 in fp32, one thread, wall time
    copy_gb_per_s: float  # a copy of 64 MiB
    load: float  # processes that want to run, over a minute

    @classmethod
    def take(cls) -> "Probe":
        """Measure the machine. Sets torch to one thread."""
        import torch

        torch.set_num_threads(1)
        first, second = torch.randn(512, 512), torch.randn(512, 512)
        source, target = torch.zeros(2**24), torch.zeros(2**24)
        product = min(_seconds(lambda: torch.mm(first, second)) for _ in range(20))
        copy = min(_seconds(lambda: target.copy_(source)) for _ in range(5))
        return cls(2 * 512**3 / product / 1e9, 2 * 2**26 / copy / 1e9, os.getloadavg()[0])

    @staticmethod
    def crowded(probes: list["Probe"]) -> bool:
        """Whether something else ran on every core."""
        return min(probe.load for probe in probes) > (os.cpu_count() or 1)

    @staticmethod
    def unsteady(probes: list["Probe"]) -> bool:
        """Whether something else ran on every core, or the machine became faster or slower between the probes."""
        speeds = [probe.gemm_gflops for probe in probes]
        return Probe.crowded(probes) or max(speeds) > (1 + DRIFT) * min(speeds)

    def as_json(self) -> dict[str, float]:
        """The figures for records, rounded."""
        return {name: round(value, 2) for name, value in asdict(self).items()}


def _seconds(work: object) -> float:
    began = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - began
