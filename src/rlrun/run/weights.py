"""Loads weights from a snapshot or file into a new run (`init_from`), or into an agent for evaluation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlrun import files, memory
from rlrun.config.schema import RunConfig
from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.loop import Loop
from rlrun.core.state import StartsFresh
from rlrun.errors import ConfigError
from rlrun.snapshot import manifest, tensors
from rlrun.snapshot.store import Store

ADDONS = "addons"  # in the header of a snapshot: the section of the config that each add-on is built from
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
    modules: parts to load; empty: the whole agent, and the add-ons with the statistics of normalisation. An entry names
    a part of the agent, such as `actor` or `agent.actor`, or the add-ons of a section of the config, such as
    `addons.normalize`. It is `<name here>:<name there>` if the source has another name for the part, as in
    `particles.0.policy:policy`. An empty name means the whole agent.
    fresh_exploration: keep the loop's own state of exploration, such as noise, and do not load that of the source.
    """
    state, sections_there = stored(path)
    weights = {key: value for key, value in state.items() if "_extra_state" not in key}
    source = f"init_from={path}"
    fresh = tuple(f"{place}." for place, module in loop.named_modules() if isinstance(module, StartsFresh))
    if fresh_exploration:
        fresh += tuple(exploration(loop))

    def may_lack(name: str) -> bool:
        return name.endswith("_extra_state") or name.startswith(fresh)

    for entry in modules:
        name, colon, name_there = entry.partition(":")
        if not colon:
            name_there = name
        places = places_of(name, loop.addons.sections)
        origins = places_of(name_there, sections_there)
        if not places or len(places) != len(origins):
            raise ConfigError(
                f"{source}: {name} stands for {len(places)} add-ons here and {name_there} for {len(origins)} there "
                f"(here: {', '.join(loop.addons.sections)}; there: {', '.join(sections_there)})"
            )
        for place, origin in zip(places, origins, strict=True):
            renamed = {}
            for key, value in weights.items():
                if key.startswith(f"{origin}."):
                    renamed[place + key.removeprefix(origin)] = value
            load_part(part_of(loop, place, source), without(renamed, fresh), place, may_lack, source)
    if not modules:
        load_part(loop.agent, without(weights, fresh), "agent", may_lack, source)
        load_part(loop.addons, without(weights, fresh), "addons", may_lack, source)


def exploration(loop: Loop) -> Iterator[str]:
    """Yields the names of modules and tensors that hold the state of exploration of all agents in a loop."""
    for place, module in loop.named_modules():
        if isinstance(module, Agent):
            for name in module.explores_with:
                yield f"{place}.{name}"


def stored(path: Path) -> tuple[Mapping[str, object], list[str]]:
    """Returns the state stored at `path`, by names such as `agent.actor.output.bias`, and the section of each add-on.

    Raises ConfigError if there is no state at `path`, SnapshotError if a snapshot is faulty.
    """
    if path.suffix == ".safetensors":
        try:
            return tensors.load(files.read(path.resolve(), memory.total() // manifest.COPIES)), []
        except Exception as error:  # an untrusted file may hold anything
            raise ConfigError(f"init_from={path}: cannot be read ({manifest.line(error)})") from None
    run_path, name = locate(path)
    if run_path.is_dir():
        files.check_folder(run_path)
    store = Store(run_path)
    if not store.names():
        raise ConfigError(f"init_from={path}: not a run with a snapshot, nor a snapshot of one, nor a safetensors file")
    snapshot = store.load(name)
    sections = snapshot.header.get(ADDONS)  # missing in a snapshot of an earlier version
    if not isinstance(sections, list):
        sections = []
    return snapshot.state, [str(section) for section in sections]


def places_of(name: str, sections: list[str]) -> list[str]:
    """Returns the prefixes of a part in the state of a run: of the agent, or of the add-ons `addons.<section>`.

    sections: the section of each add-on of the run. An empty name is the whole agent.
    """
    group, _, inner = name.partition(".")
    if group == "agent":
        return [name]
    if group != ADDONS:
        return [f"agent.{name}".removesuffix(".")]
    section, dot, rest = inner.partition(".")
    return [f"{ADDONS}.{number}{dot}{rest}" for number, own in enumerate(sections) if own == section]


def part_of(loop: Loop, place: str, source: str) -> nn.Module:
    """Returns the part of a loop at a place, `agent`, `agent.<name>` or `addons.<number>`.

    Raises ConfigError, which names `source`, if there is none or a part of the agent has no weights.
    """
    group, _, name = place.partition(".")
    if group == ADDONS:
        modules = dict(loop.addons.named_modules())
        if name not in modules:
            raise ConfigError(f"{source}: the add-on has no part {name.partition('.')[2]}")
        return modules[name]
    parts = {name: part for name, part in loop.agent.named_modules() if has_weights(part)}
    if name not in parts:
        children = ", ".join(child for child, part in loop.agent.named_children() if has_weights(part))
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
    may_lack: Callable[[str], bool] | None = None,
    source: str = "the snapshot",
) -> None:
    """Loads the entries under `prefix` into a module.

    may_lack: whether an entry of this name may be missing; None: all must be there.
    Raises ConfigError, which names `source`, if names or shapes do not match the module, or if a parameter is not
    finite.
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
    if may_lack is not None:
        missing = [key for key in missing if not may_lack(f"{prefix}.{key}")]
    if missing:
        raise ConfigError(f"{source}: does not fit this config: {prefix}.{missing[0]} is missing there")
    if unknown:
        raise ConfigError(f"{source}: does not fit this config: {prefix}.{unknown[0]} is unknown here")


def load_acting(agent: Agent, addons: Addons, state: Mapping[str, object]) -> None:
    """Loads a snapshot of which only what acting reads must be there.

    Weights that it lacks, such as those of critics, are NaN afterwards, so that no number is computed with others.
    """
    read = read_by_acting(agent, addons)
    for learner, prefix in ((agent, "agent"), (addons, ADDONS)):
        unread = names_outside(learner, prefix, read)
        load_part(learner, state, prefix, unread.__contains__)
        for name, tensor in learner.state_dict(prefix=f"{prefix}.").items():
            if name in unread - state.keys() and isinstance(tensor, Tensor) and tensor.is_floating_point():
                tensor.fill_(torch.nan)


def read_by_acting(agent: Agent, addons: Addons) -> set[nn.Module]:
    """Returns all modules that `act` and `see` read. An agent that plans also reads the add-on that predicts."""
    parts = [*agent.acting(), *addons.acting()]
    return {agent, addons, *(module for part in parts for module in part.modules())}


def names_outside(learner: Agent | Addons, prefix: str, read: set[nn.Module]) -> set[str]:
    """Returns the names in the state of an agent, or of add-ons, of what no module of `read` holds itself."""
    names = learner.state_dict()
    return {f"{prefix}.{name}" for name in names if learner.get_submodule(name.rpartition(".")[0]) not in read}


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
