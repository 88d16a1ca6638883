"""Loads weights from a snapshot or file into a new run (`init_from`), or into an agent for evaluation."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from rlrun import files, memory
from rlrun.config.schema import RunConfig
from rlrun.core.agent import Agent
from rlrun.core.loop import Loop
from rlrun.core.state import StartsFresh
from rlrun.errors import ConfigError
from rlrun.snapshot import manifest, tensors
from rlrun.snapshot.store import Store

WEIGHTS_ONLY = "weights_only"  # in the header of a snapshot that holds what acting needs, and nothing else


def locate(path: Path) -> tuple[Path, str | None]:
    """Returns run directory and snapshot name of a path RUN/snapshots/<name>. For a path RUN, the name is None.

    Raises ConfigError if there is no such snapshot.
    """
    if path.parent.name == "snapshots":
        if not path.is_dir():
            raise ConfigError(f"{path}: no such snapshot")
        return path.parent.parent, path.name
    return path, None


def sources(config: RunConfig) -> list[tuple[Path, list[str]]]:
    """Returns the sources of initial weights, each with the parts of the agent to load, as `warm_start` takes them.

    Raises ConfigError if `init_modules` is set without one source of all of them.
    """
    if isinstance(config.init_from, str):
        return [(Path(config.init_from), config.init_modules)]
    if config.init_modules:
        modules = f"init_modules=[{','.join(config.init_modules)}]"
        if config.init_from is None:
            raise ConfigError(f"{modules}: needs init_from=RUN, the source of weights")
        raise ConfigError(f"{modules}: init_from names the parts already")
    return [(Path(path), [module]) for module, path in (config.init_from or {}).items()]


def warm_start(path: Path, loop: Loop, modules: Sequence[str] = (), fresh_exploration: bool = False) -> None:
    """Loads the weights of a run, a snapshot or a safetensors file into a new loop.

    Optimisers and random streams are not loaded.
    modules: parts of the agent to load; empty: the whole agent, and the add-ons with the statistics of normalisation.
    An entry is a name such as `actor`, or `<name here>:<name there>` if the source has another name for the part, as in
    `particles.0.policy:policy`. An empty name means the whole agent.
    fresh_exploration: keep the loop's own state of exploration, such as noise, and do not load that of the source.
    """
    weights = {key: value for key, value in stored(path).items() if "_extra_state" not in key}
    source = f"init_from={path}"
    fresh = tuple(f"{place}." for place, module in loop.named_modules() if isinstance(module, StartsFresh))
    if fresh_exploration:
        fresh += tuple(exploration(loop))
    for entry in modules:
        name, colon, name_there = entry.partition(":")
        if not colon:
            name_there = name
        place = place_of(name)
        origin = place_of(name_there)
        renamed = {}
        for key, value in weights.items():
            if key.startswith(f"{origin}."):
                renamed[place + key.removeprefix(origin)] = value
        load_part(part_of(loop.agent, name, source), without(renamed, fresh), place, fresh, source)
    if not modules:
        load_part(loop.agent, without(weights, fresh), "agent", fresh, source)
        load_part(loop.addons, without(weights, fresh), "addons", fresh, source)


def exploration(loop: Loop) -> Iterator[str]:
    """Yields the names of modules and tensors that hold the state of exploration of all agents in a loop."""
    for place, module in loop.named_modules():
        if isinstance(module, Agent):
            for name in module.explores_with:
                yield f"{place}.{name}"


def stored(path: Path) -> Mapping[str, object]:
    """Returns the state stored at `path`, by names such as `agent.actor.output.bias`.

    Raises ConfigError if there is no state at `path`, SnapshotError if a snapshot is faulty.
    """
    if path.suffix == ".safetensors":
        try:
            return tensors.load(files.read(path.resolve(), memory.total() // manifest.COPIES))
        except Exception as error:  # an untrusted file may hold anything
            raise ConfigError(f"init_from={path}: cannot be read ({manifest.line(error)})") from None
    run_path, name = locate(path)
    if run_path.is_dir():
        files.check_folder(run_path)
    store = Store(run_path)
    if not store.names():
        raise ConfigError(f"init_from={path}: not a run with a snapshot, nor a snapshot of one, nor a safetensors file")
    return store.load(name).state


def place_of(name: str) -> str:
    """Returns the prefix of an agent's part in the state of a run. An empty name is the whole agent."""
    if not name:
        return "agent"
    return f"agent.{name}"


def part_of(agent: nn.Module, name: str, source: str) -> nn.Module:
    """Returns the part of the agent with this name.

    Raises ConfigError, which names `source`, if there is none or it has no weights.
    """
    parts = {name: part for name, part in agent.named_modules() if has_weights(part)}
    if name not in parts:
        children = ", ".join(child for child, part in agent.named_children() if has_weights(part))
        raise ConfigError(f"{source}: the agent has no {name} (it has: {children})")
    return parts[name]


def has_weights(module: nn.Module) -> bool:
    """Returns whether a module has parameters."""
    return next(module.parameters(), None) is not None


def without(state: dict[str, Any], places: tuple[str, ...]) -> dict[str, Any]:
    """Returns the entries whose names begin with none of these prefixes."""
    return {key: value for key, value in state.items() if not key.startswith(places)}


def load_part(
    module: nn.Module,
    state: Mapping[str, object],
    prefix: str,
    optional: tuple[str, ...] | None = None,
    source: str = "the snapshot",
) -> None:
    """Loads the entries under `prefix` into a module.

    Raises ConfigError, which names `source`, if names or shapes do not match the module, or if a parameter is not
    finite. If `optional` is given, extra state and entries whose names begin with one of these prefixes may be missing.
    """
    own = {}
    for key, value in state.items():
        if key.startswith(f"{prefix}."):
            own[key.removeprefix(f"{prefix}.")] = value
    try:
        missing, unknown = module.load_state_dict(own, strict=False)
    except Exception as error:  # an untrusted snapshot may hold anything
        misfit = _misfit(module, own, prefix)
        if misfit is None:
            misfit = manifest.line(error)
        raise ConfigError(f"{source}: does not fit this config: {misfit}") from None
    place = not_finite(module)
    if place is not None:
        raise ConfigError(f"{source}: {prefix}.{place} holds numbers that are not finite")
    if optional is not None:
        needed = [key for key in missing if not key.endswith("_extra_state")]
        missing = [key for key in needed if not f"{prefix}.{key}".startswith(optional)]
    if missing:
        raise ConfigError(f"{source}: does not fit this config: {prefix}.{missing[0]} is missing there")
    if unknown:
        raise ConfigError(f"{source}: does not fit this config: {prefix}.{unknown[0]} is unknown here")


def not_finite(module: nn.Module) -> str | None:
    """Returns the name of the first parameter of a module that is not finite, or None."""
    for name, parameter in module.named_parameters():
        if not parameter.isfinite().all():
            return name
    return None


def _misfit(module: nn.Module, given: Mapping[str, object], prefix: str) -> str | None:
    """Returns a text about the first tensor with another shape and the number of others; None if all shapes match."""
    faults = []
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        shape = list(tensor.shape)
        other = list(getattr(given.get(name), "shape", shape))
        if other != shape:
            faults.append(f"{prefix}.{name} is {other} there and {shape} here")
    if len(faults) < 2:
        return next(iter(faults), None)
    return f"{faults[0]} ({len(faults) - 1} more like it)"
