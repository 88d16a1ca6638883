"""rlrun: config-driven reinforcement learning.

import rlrun

run = rlrun.train("algo=sac", "env=Pendulum", seed=1)  # same arguments as `rlrun train`
run = rlrun.Run("runs/sac-Pendulum/...")  # a run that exists
runs = rlrun.runs("algo=sac", "env=Pendulum")  # those in the folder runs/, as `rlrun status` lists them
policy = rlrun.load(run.path)
action = policy.act(obs)
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["Run", "evaluate", "load", "log", "runs", "train"]


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used, because most of them import torch, which would slow the command line."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "log":
        from rlrun.core.logged import log

        return log
    from rlrun import python

    return getattr(python, name)
