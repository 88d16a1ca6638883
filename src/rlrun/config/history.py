"""The names that earlier formats of runs used for config keys, metrics and state, and the keys that they did not have.

`config.yaml` begins with its format, and every snapshot holds it. Nothing else fills a stored config in: a key that is
missing without standing here was cut off, and is an error.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlrun.config import format_3
from rlrun.config.renamed import Renamed
from rlrun.errors import ConfigError


class Added(NamedTuple):
    """A key that a format has and the one before had not."""

    key: str  # its path
    value: Any  # that equals its absence
    beside: str  # a key of the same section, without which the section has no use for it


@dataclass(frozen=True)
class Change:
    """From one format to the next."""

    keys: tuple[Renamed, ...] = ()  # of config.yaml
    metrics: tuple[Renamed, ...] = ()  # keys of a row, like loss/critic
    state: tuple[Renamed, ...] = ()  # of snapshots: the path of a value, or its beginning; `*` is any one name
    added: tuple[Added, ...] = ()
    regroup: Callable[[dict[str, Any]], None] | None = None  # changes the whole config in place, after the renames
    restate: Callable[[dict[str, Any]], None] | None = None  # changes the whole state in place, after the renames


CHANGES: tuple[Change, ...] = (
    Change(  # from format 1 to 2
        added=(
            Added("env.selftest", "auto", beside="id"),
            Added("algo.loop.data_env", "any", beside="data"),
            Added("algo.buffer.data_env", "any", beside="given"),
        )
    ),
    Change(  # from format 2 to 3
        keys=format_3.KEYS,
        metrics=format_3.METRICS,
        state=format_3.STATE,
        regroup=format_3.regroup,
        restate=format_3.restate,
        added=(
            Added("network.norm", {"name": "none"}, beside="hidden"),
            Added("network.actor", {}, beside="hidden"),
            Added("network.critic", {}, beside="hidden"),
        ),
    ),
)
FORMAT = len(CHANGES) + 1
LOSS = "loss/"  # before the names of an agent's metrics in a row
LAST_METRICS = "trainer._extra_state.metrics."  # before the same names in a snapshot
KEY = "format"  # of config.yaml; the first format had none
METRICS_KEY = "metrics_format"  # of config.yaml: the format that the run began with, where a later version rewrote it


def upgraded(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A stored config in today's format, without the key `format`, and what was filled in, like `env.x=1`.

    Raises ConfigError for a format that is not known.
    """
    values = copy.deepcopy(values)
    stored = values.pop(KEY, 1)
    values.pop(METRICS_KEY, None)
    if type(stored) is not int or not 1 <= stored <= FORMAT:
        raise ConfigError(f"{KEY}={stored}: this version of rlrun reads formats 1 to {FORMAT}")
    filled: list[str] = []
    algo = _algo(values)
    for change in CHANGES[stored - 1 :]:
        for old, new in _names(change.keys, algo):
            section, name = _place(values, old)
            if name in section:
                home, renamed = _place(values, new)
                home[renamed] = section.pop(name)
        if change.regroup is not None:
            change.regroup(values)
        for key, value, beside in change.added:
            section, name = _place(values, key)
            if beside in section and name not in section:
                section[name] = copy.deepcopy(value)
                filled.append(f"{key}={value}")
    return values, filled


def metrics_format(values: dict[str, Any]) -> int:
    """The format whose metric keys a run writes for the rest of its life: that with which it began.

    `values`: a stored config as it was read. Raises ConfigError.
    """
    stored = values.get(KEY, 1)
    found = values.get(METRICS_KEY, stored)
    if type(found) is not int or not 1 <= found <= stored:
        raise ConfigError(f"{METRICS_KEY}={found}: must be a whole number from 1 to {stored}, the file's {KEY}")
    return found


def former_keys(key: str, algo: str) -> list[str]:
    """The earlier names of a config key of the agent `algo`, latest first."""
    found = []
    for change in reversed(CHANGES):
        for old, new in _names(change.keys, algo):
            if new == key:
                found.append(old)
                key = old
    return found


def renamed_metrics(row: dict[str, Any], stored: int, algo: str) -> dict[str, Any]:
    """A row of metrics of an earlier format, by today's keys."""
    for change in CHANGES[stored - 1 :]:
        names = dict(_names(change.metrics, algo))
        row = {names.get(key, key): value for key, value in row.items()}
    return row


def former_metrics(row: dict[str, Any], stored: int, algo: str) -> dict[str, Any]:
    """A row of metrics with today's keys, by the keys of an earlier format: the inverse of `renamed_metrics`."""
    for change in reversed(CHANGES[stored - 1 :]):
        names = {new: old for old, new in _names(change.metrics, algo)}
        row = {names.get(key, key): value for key, value in row.items()}
    return row


def renamed_state(state: dict[str, Any], stored: int, algo: str) -> dict[str, Any]:
    """A snapshot's state of an earlier format, by today's paths."""
    for change in CHANGES[stored - 1 :]:
        for old, new in _names(change.state, algo):
            state = _moved(state, old, new)
        for old, new in _names(change.metrics, algo):
            state = _moved(state, old.replace(LOSS, LAST_METRICS), new.replace(LOSS, LAST_METRICS))
        if change.restate is not None:
            change.restate(state)
    return state


def _algo(values: dict[str, Any]) -> str:
    """The `algo.name` of a stored config, which may hold anything."""
    section, name = _place(values, "algo.name")
    return str(section.get(name, ""))


def _names(renamed: tuple[Renamed, ...], algo: str) -> Iterator[tuple[str, str]]:
    """Old and new names of what an agent has."""
    for old, new, algos in renamed:
        if not algos or algo in algos:
            yield old, new


def _place(values: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The section of a key path, and the key's own name; an empty section where there is none."""
    *sections, name = key.split(".")
    section: Any = values
    for part in sections:
        section = section.get(part) if isinstance(section, dict) else None
    if isinstance(section, dict):
        return section, name
    return {}, name


def _moved(state: dict[str, Any], old: str, new: str, prefix: str = "") -> dict[str, Any]:
    """State with one path renamed. A path may lead into the dictionaries of an `_extra_state`."""
    moved = {}
    for name, value in state.items():
        path = f"{prefix}{name}"
        renamed = _renamed(path, old, new)
        if renamed is not None:
            name = renamed.removeprefix(prefix)
        elif isinstance(value, dict) and old.startswith(f"{path}."):
            value = _moved(value, old, new, f"{path}.")
        moved[name] = value
    return moved


def _renamed(path: str, old: str, new: str) -> str | None:
    """A path that begins with `old`, under its new name; None if it does not. The names that `*` matches stay."""
    names = path.split(".")
    pattern = old.split(".")
    if len(names) < len(pattern):
        return None
    matched = []
    for name, part in zip(names, pattern, strict=False):
        if part == "*":
            matched.append(name)
        elif part != name:
            return None
    for name in matched:
        new = new.replace("*", name, 1)
    return ".".join([new, *names[len(pattern) :]])
