"""Speed and nothing else. The only package that knows about threads, allocators, compilers and product paths."""

from rlrun.engine.accelerate import accelerate
from rlrun.engine.process import prepare

__all__ = ["accelerate", "prepare"]
