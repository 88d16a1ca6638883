"""Parts of a command, such as `submit=slurm` and `prune=asha`, whose settings belong to no run."""

import copy
from collections.abc import Mapping
from typing import Any

from rlrun import dotted
from rlrun.config import check, sources
from rlrun.errors import ConfigError, nearest


def settings(group: str, key: str, name: str) -> dict[str, Any]:
    """Returns the settings of a part, as in its YAML file. Raises ConfigError if its group has no such name.

    group: a folder below conf/ with dots for slashes, such as `sweep.prune`. key: what is typed before `=`.
    """
    known = sources.options(group, [sources.CONF])
    if not isinstance(name, str) or name not in known:
        near = nearest(str(name), known)
        raise ConfigError(f"{key}={dotted.show(name)}: unknown name{near} (there are: {', '.join(known)})")
    return sources.content(known[name]) or {}


def apply(values: Mapping[str, Any], tree: dict[str, Any]) -> list[str]:
    """Sets the dotted keys of `values` in a tree of settings. Returns the faults; settings with faults are not set."""
    faults = []
    known = copy.deepcopy(tree)  # without the keys set below: a section accepts any key only while it is {}
    for key, value in values.items():
        found = list(check.faults(key, value, known))
        if found:
            faults += found
        else:
            dotted.put(key, check.fitted(value, dotted.lookup(key, tree)), tree)
    return faults
