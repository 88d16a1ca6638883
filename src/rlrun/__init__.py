"""rlrun: config-driven reinforcement learning.

import rlrun

run = rlrun.train("algo=sac", "env=Pendulum", seed=1)  # the words of the command line
policy = rlrun.load(run.path)
action = policy.act(obs)
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["load", "train"]


def __getattr__(name: str) -> Any:
    """Names that need torch are imported at first use, so that the command line starts without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlrun import python

    return getattr(python, name)
