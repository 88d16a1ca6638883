"""What stored configs of earlier formats call things, and what they do not say.

`config.yaml` begins with its format. Nothing else fills a stored config in: a key that is missing without standing here
was cut off, and is an error.
"""

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlrun.errors import ConfigError


class Added(NamedTuple):
    """A key that a format has and the one before had not."""

    key: str  # its path
    value: Any  # that equals its absence
    beside: str  # a key of the same section, without which the section has no use for it


@dataclass(frozen=True)
class Change:
    """From one format to the next."""

    keys: dict[str, str] = field(default_factory=dict)  # renamed: old key path -> new key path
    state: dict[str, str] = field(default_factory=dict)  # renamed in snapshots: beginning of a path -> the new one
    added: tuple[Added, ...] = ()


CHANGES: tuple[Change, ...] = (
    Change(  # from format 1 to 2
        added=(
            Added("env.selftest", "auto", beside="id"),
            Added("algo.loop.data_env", "any", beside="data"),
            Added("algo.buffer.data_env", "any", beside="given"),
        )
    ),
)
FORMAT = len(CHANGES) + 1
KEY = "format"  # of config.yaml; the first format had none


def upgraded(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A stored config in today's format, without the key `format`, and what was filled in, like `env.x=1`.

    Raises ConfigError for a format that is not known.
    """
    values = copy.deepcopy(values)
    stored = values.pop(KEY, 1)
    if type(stored) is not int or not 1 <= stored <= FORMAT:
        raise ConfigError(f"{KEY}={stored}: this version of rlrun reads formats 1 to {FORMAT}")
    filled: list[str] = []
    for change in CHANGES[stored - 1 :]:
        for old, new in change.keys.items():
            section, name = _place(values, old)
            if name in section:
                home, renamed = _place(values, new)
                home[renamed] = section.pop(name)
        for key, value, beside in change.added:
            section, name = _place(values, key)
            if beside in section and name not in section:
                section[name] = copy.deepcopy(value)
                filled.append(f"{key}={value}")
    return values, filled


def renamed_state(state: dict[str, Any], stored: int) -> dict[str, Any]:
    """A snapshot's state of an earlier format, by today's paths."""
    for change in CHANGES[stored - 1 :]:
        for old, new in change.state.items():
            state = {_renamed(path, old, new): value for path, value in state.items()}
    return state


def _place(values: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The section of a key path, and the key's own name; an empty section where there is none."""
    *sections, name = key.split(".")
    section: Any = values
    for part in sections:
        section = section.get(part) if isinstance(section, dict) else None
    return (section if isinstance(section, dict) else {}), name


def _renamed(path: str, old: str, new: str) -> str:
    return new + path.removeprefix(old) if f"{path}.".startswith(f"{old}.") else path
