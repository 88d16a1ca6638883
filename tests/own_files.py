"""What tests of a user's own files share."""

import sys

import gymnasium as gym

from rlrun import imports, registry
from rlrun.config import declared


def forget() -> None:
    """Forgets modules and names that begin with `file`, as a new process has never seen them."""
    imports._code.clear()
    declared._tree.cache_clear()
    declared.declared.cache_clear()
    for names in (sys.modules, gym.registry, *registry._registry.values()):
        for name in [name for name in names if name.lower().startswith("file")]:
            del names[name]
