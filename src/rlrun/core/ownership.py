"""Finds the optimisers of every weight. `Optim` says why a trained weight must have exactly one owner."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.state import Optim
from rlrun.errors import ConfigError

MOST_NAMES = 3  # of weights in a message
Optimiser = Optim | torch.optim.Optimizer
OF_MODULES = frozenset(vars(nn.Module()))  # attributes that every module has, such as its parameters and hooks


class Weight(NamedTuple):
    """A parameter. One that is not trained on purpose, as in target networks, has `requires_grad=False`."""

    names: list[str]  # such as agent.policy.trunk.0.weight; several if modules share the parameter
    shape: tuple[int, ...]
    is_trained: bool
    optimisers: list[str]  # names of all optimisers that change it
    owners: list[str]  # those that do not lie within another one

    def __str__(self) -> str:
        return self.names[0]


def weights(agent: Agent, addons: Addons) -> list[Weight]:
    """Returns the parameters of an agent and its add-ons in the order of the modules, those not trained at the end."""
    tree = nn.ModuleDict({"agent": agent, "addons": addons})
    holders: dict[int, dict[str, Optimiser]] = {}
    for name, optimiser in _optimisers(tree):
        for param in _params(optimiser):
            holders.setdefault(id(param), {})[name] = optimiser
    found: dict[int, Weight] = {}
    for name, param in tree.named_parameters(remove_duplicate=False):
        if id(param) in found:
            found[id(param)].names.append(name)
        else:
            named = holders.get(id(param), {})
            holding = {id(optimiser) for optimiser in named.values()}
            owners = [name for name, optimiser in named.items() if holding.isdisjoint(_around(optimiser))]
            found[id(param)] = Weight([name], tuple(param.shape), param.requires_grad, [*named], owners)
    return sorted(found.values(), key=lambda weight: not weight.is_trained)


def check(agent: Agent, addons: Addons) -> None:
    """Raises ConfigError if several optimisers own a weight."""
    shared: dict[tuple[str, ...], list[Weight]] = {}
    for weight in weights(agent, addons):
        if len(weight.owners) > 1:
            shared.setdefault(tuple(weight.owners), []).append(weight)
    if shared:
        raise ConfigError(*(_fault(agent, owners, among) for owners, among in shared.items()))


def untrained(agent: Agent, addons: Addons) -> str:
    """Returns a line about weights that should be trained but have no optimiser, or "" if there are none."""
    found = [weight for weight in weights(agent, addons) if weight.is_trained and not weight.owners]
    if not found:
        return ""
    return f"no optimiser trains {_listed(found)}; if that is so on purpose, set requires_grad_(False)"


def _fault(agent: Agent, owners: Sequence[str], shared: list[Weight]) -> str:
    names = " and ".join(owners)
    return (
        f"algo={agent.registered}: {names} train {_listed(shared)}; give every weight to one optimiser, or make "
        "one with within=<the other>"
    )


def _listed(found: list[Weight]) -> str:
    names = [str(weight) for weight in found[:MOST_NAMES]]
    if len(found) > MOST_NAMES:
        names.append(f"{len(found) - MOST_NAMES} more")
    return ", ".join(names)


def _optimisers(tree: nn.Module) -> Iterator[tuple[str, Optimiser]]:
    """Yields every optimiser once, with its first name.

    It is a module (`Optim`), or an attribute of a module, directly or in lists, tuples, sets and dicts.
    """
    seen: set[int] = set()
    for name, optimiser in _found(tree):
        if id(optimiser) not in seen:
            seen.add(id(optimiser))
            yield name, optimiser


def _found(tree: nn.Module) -> Iterator[tuple[str, Optimiser]]:
    for path, module in tree.named_modules():
        if isinstance(module, Optim):
            yield path, module
            continue
        for name, value in vars(module).items():
            if name not in OF_MODULES:  # the tree yields submodules itself
                yield from _inside(f"{path}.{name}", value)


def _inside(name: str, value: object) -> Iterator[tuple[str, Optimiser]]:
    if isinstance(value, Optimiser):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _inside(f"{name}.{key}", item)
    elif isinstance(value, list | tuple | set):
        for index, item in enumerate(value):
            yield from _inside(f"{name}.{index}", item)


def _params(optimiser: Optimiser) -> Iterable[nn.Parameter]:
    if isinstance(optimiser, Optim):
        return optimiser.params
    return [param for group in optimiser.param_groups for param in group["params"]]


def _around(optimiser: Optimiser) -> Iterator[int]:
    """Yields the ids of the optimisers within which this one lies."""
    if isinstance(optimiser, Optim):
        for outer in optimiser.within:
            yield id(outer)
            yield from _around(outer)
