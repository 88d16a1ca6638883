"""Speed and nothing else: threads, allocators, product paths, recorded and compiled kernels.

This page is the only door; benchmarks alone look inside. `trainer.engine=eager` imports none of the modules that record
and compile, which rest on private names of torch.
"""

from rlrun.engine.accelerate import accelerate
from rlrun.engine.machine import about, follow, resumed
from rlrun.engine.process import prepare
from rlrun.engine.products import rule as product_path
from rlrun.engine.support import check, running

__all__ = ["about", "accelerate", "check", "follow", "prepare", "product_path", "resumed", "running"]
