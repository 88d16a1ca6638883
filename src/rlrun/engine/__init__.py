"""Speed and nothing else: threads, allocators, the library for matrix products, recorded and compiled kernels.

This page is the only door; benchmarks alone look inside. `trainer.engine=eager` imports none of the modules that record
and compile, which rest on private names of torch.
"""

from rlrun.engine.accelerate import accelerate
from rlrun.engine.hardware_profile import about, follow, resumed
from rlrun.engine.matmul_backend import rule as matmul_rule
from rlrun.engine.process import prepare
from rlrun.engine.support import check, running

__all__ = ["about", "accelerate", "check", "follow", "matmul_rule", "prepare", "resumed", "running"]
