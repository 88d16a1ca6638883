"""Weights from elsewhere: a run's snapshot as the start of another, or for evaluation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from rlrun.core.loop import Loop
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.snapshot.manifest import line
from rlrun.snapshot.store import Store


def locate(path: Path) -> tuple[Path, str | None]:
    """The run directory and snapshot name that a path means: RUN, or RUN/snapshots/<name>."""
    return (path.parent.parent, path.name) if path.parent.name == "snapshots" else (path, None)


def warm_start(path: Path, loop: Loop, modules: Sequence[str] = ()) -> None:
    """Weights of another run's snapshot; optimisers and random streams start fresh.

    With `modules`, only those parts of the agent (`actor`); without, all of it and the normalisers' statistics.
    """
    run_path, name = locate(path)
    store = Store(run_path)
    if not store.names():
        raise ConfigError(f"init_from={path}: not a run with a snapshot, nor a snapshot of one")
    state = store.load(name).state
    fresh = tuple(f"{place}." for place, module in loop.named_modules() if isinstance(module, Optim)) or ("\0",)
    weights = {key: value for key, value in state.items() if not key.endswith("_extra_state")}
    weights = {key: value for key, value in weights.items() if not key.startswith(fresh)}
    children = {name: part for name, part in loop.agent.named_children() if any(True for _ in part.parameters())}
    unknown = [part for part in modules if part not in children]
    if unknown:
        raise ConfigError(f"init_modules: the agent has no {', '.join(unknown)} (it has: {', '.join(children)})")
    for part in modules:
        load_part(children[part], weights, f"agent.{part}", optional=fresh)
    if not modules:
        load_part(loop.agent, weights, "agent", optional=fresh)
        load_part(loop.addons, weights, "addons", optional=fresh)


def load_part(module: nn.Module, state: dict[str, Any], prefix: str, optional: tuple[str, ...] = ()) -> None:
    """The entries under `prefix` into a module. ConfigError where names or shapes do not fit; entries that begin with
    one of `optional`, and where there are any also extra state, may be missing."""
    own = {key.removeprefix(f"{prefix}."): value for key, value in state.items() if key.startswith(f"{prefix}.")}
    try:
        missing, unknown = module.load_state_dict(own, strict=False)
    except Exception as error:  # a stranger's snapshot may hold anything
        reason = line(error).removeprefix(f"Error(s) in loading state_dict for {type(module).__name__}: ")
        raise ConfigError(f"the snapshot's {prefix} does not fit this config: {reason}") from None
    if optional:
        needed = (key for key in missing if not key.endswith("_extra_state"))
        missing = [key for key in needed if not f"{prefix}.{key}".startswith(optional)]
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {unknown[0]}"
        raise ConfigError(f"the snapshot's {prefix} does not fit this config: it {what}")
