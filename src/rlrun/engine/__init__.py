"""Makes runs faster without a change to any agent: threads, allocator, matrix products, recorded and compiled kernels.

Other packages import only what this module exports, except for the benchmarks. The modules that record and compile
kernels use private names of torch; `trainer.engine=eager` imports none of them.
"""

from rlrun.engine.accelerate import accelerate
from rlrun.engine.hardware_profile import Engine, about, chosen, resumed
from rlrun.engine.matmul_backend import rule as matmul_rule
from rlrun.engine.process import prepare
from rlrun.engine.support import check, running

__all__ = ["Engine", "about", "accelerate", "check", "chosen", "matmul_rule", "prepare", "resumed", "running"]
