"""The space that a sweep searches: config keys, each with its range, read from `conf/space/<name>.yaml` or words."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlrun import dotted
from rlrun.config import check, sources
from rlrun.errors import ConfigError, nearest
from rlrun.formats.numbers import is_number
from rlrun.sweep.ranges import Listed, Range, built, plain, typed

GROUP = "space"  # folder of conf/
IF = "if"
SECTIONS = ("algo", "network", "env")  # sections of the config whose keys can be searched
KEY = re.compile(r"[\w-]+(\.[\w-]+)*")


@dataclass(frozen=True)
class Dimension:
    """One searched key."""

    key: str
    range: Range
    condition: Mapping[str, list[object]]  # the key is searched if each of these keys has one of its values

    @property
    def text(self) -> str:
        """The range and its condition."""
        text = self.range.text
        for key, values in self.condition.items():
            text += f" if {key}={'|'.join(map(dotted.show, values))}"
        return text


class Space:
    """The searched keys in order. A condition may depend on fixed keys and on searched keys before its own."""

    def __init__(self, dimensions: Sequence[Dimension]):
        """Raises ConfigError if a key is searched twice, or a condition depends on a key that comes later."""
        self.dimensions = list(dimensions)
        keys = [dimension.key for dimension in dimensions]
        faults = []
        for index, dimension in enumerate(dimensions):
            if dimension.key in keys[:index]:
                faults.append(f"{dimension.key}: is searched twice")
            for needed in dimension.condition:
                if needed in keys[index:]:
                    faults.append(f"{dimension.key}: its condition depends on {needed}, which must come before it")
        if faults:
            raise ConfigError(*faults)

    def __len__(self) -> int:
        return len(self.dimensions)

    @property
    def keys(self) -> list[str]:
        """The searched keys."""
        return [dimension.key for dimension in self.dimensions]

    def values(self, point: Sequence[float], fixed: Mapping[str, object]) -> dict[str, object]:
        """Returns the values at a point of the unit cube [len(self)], by key, without keys whose condition is false.

        fixed: the composed config, as nested dicts; it holds the values of keys that are not searched.
        """
        values: dict[str, object] = {}
        for dimension, u in zip(self.dimensions, point, strict=True):
            if all(_value(key, values, fixed) in allowed for key, allowed in dimension.condition.items()):
                values[dimension.key] = dimension.range.value(u)
        return values

    def has_point(self, point: Any) -> bool:
        """Returns whether this is a point of the unit cube. Raises TypeError for anything without a length."""
        if len(point) != len(self):
            return False
        for dimension, u in zip(self.dimensions, point, strict=True):
            if not is_number(u, 0, 1) or (u == 1 and isinstance(dimension.range, Listed)):
                return False
        return True

    def gives(self, point: Sequence[float], values: Mapping[str, object]) -> bool:
        """Returns whether these may be the values at a point. Conditions are not evaluated, as in `has_values`."""
        for dimension, u in zip(self.dimensions, point, strict=True):
            if dimension.key not in values:
                continue
            expected = dimension.range.value(u)
            if values[dimension.key] != expected or type(values[dimension.key]) is not type(expected):
                return False
        return True

    def has_values(self, values: Any) -> bool:
        """Returns whether these may be the values of a trial. Conditions are not evaluated: a key that has one may be
        missing. Raises AttributeError for anything but a mapping."""
        if not values.keys() <= {*self.keys}:
            return False
        for dimension in self.dimensions:
            if dimension.key in values and not dimension.range.holds(values[dimension.key]):
                return False
            if dimension.key not in values and not dimension.condition:
                return False
        return True


def _value(key: str, searched: Mapping[str, object], fixed: Mapping[str, object]) -> object:
    if key in searched:
        return searched[key]
    return dotted.lookup(key, dict(fixed))


def from_yaml(values: object, place: str) -> Space:
    """Returns the space that a YAML file describes: `key: {log: [1e-5, 1e-2], if: {other.key: value}}`.

    Raises one ConfigError with all faults. place: the file, for messages.
    """
    if not isinstance(values, dict) or not values:
        raise ConfigError(f"{place}: must be a mapping of config keys to ranges")
    dimensions = []
    faults = []
    for key, entry in values.items():
        try:
            dimensions.append(_dimension(str(key), entry))
        except ConfigError as error:
            faults += [f"{place}: {key}: {fault}" for fault in error.faults]
    if faults:
        raise ConfigError(*faults)
    return Space(dimensions)


def _dimension(key: str, entry: object) -> Dimension:
    form = "must be a range such as {log: [1e-5, 1e-2]}, and may have {if: {other.key: value}}"
    if not isinstance(entry, dict):
        raise ConfigError(form)
    kinds = [name for name in entry if name != IF]
    condition = entry.get(IF, {})
    if len(kinds) != 1 or not isinstance(entry[kinds[0]], list) or not isinstance(condition, dict):
        raise ConfigError(form)
    allowed = {}
    for other, value in condition.items():
        values = value if isinstance(value, list) else [value]
        allowed[str(other)] = plain(values)
    return Dimension(key, built(str(kinds[0]), entry[kinds[0]]), allowed)


def from_words(words: Sequence[str]) -> tuple[list[Dimension], list[str]]:
    """Returns the dimensions that words such as `algo.gamma=logit(0.9,0.999)` add, and the other words."""
    dimensions = []
    others = []
    faults = []
    for word in words:
        key, _, text = word.partition("=")
        try:
            if not key:
                raise ConfigError(f"{text}: write key=value")
            range = typed(text)
        except ConfigError as error:
            faults += [f"{key}={fault}" for fault in error.faults]
            continue
        if range is None:
            others.append(word)
        else:
            dimensions.append(Dimension(check.full_key(key, text), range, {}))
    if faults:
        raise ConfigError(*faults)
    return dimensions, others


def faults(space: Space, tree: dict[str, object]) -> list[str]:
    """Returns the faults of a space for a composed config: unknown keys, and ends of ranges that a key cannot have.

    Keys that may name code are faults too, because the space of a stored sweep may be untrusted.
    """
    found = []
    for dimension in space.dimensions:
        section, _, inner = dimension.key.partition(".")
        if dotted.lookup(dimension.key, tree) is not dotted.ABSENT and (
            section not in SECTIONS or inner in ("", "id", "name")
        ):
            found.append(f"{dimension.key}: cannot be searched; keys of {', '.join(SECTIONS)} can")
            continue
        ends = dimension.range.ends()
        if not KEY.fullmatch(dimension.key) or not _is_plain(ends):
            found.append(f"{dimension.key}={dimension.range.text}: must have a plain key and plain values")
            continue
        first = next((line for end in ends for line in check.faults(dimension.key, end, tree)), None)
        if first is not None:
            found.append(first)
        for other in dimension.condition:
            if dotted.lookup(other, tree) is dotted.ABSENT:
                found.append(
                    f"{dimension.key}: its condition depends on {other}, an unknown key{check.nearest_key(other, tree)}"
                )
    return found


def _is_plain(value: object) -> bool:
    """Returns whether a value means the same when it is a word of a command: it has no references, and plain keys."""
    if isinstance(value, dict):
        return all(KEY.fullmatch(str(key)) for key in value) and all(map(_is_plain, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(map(_is_plain, value))
    return "$" not in str(value)


def named(name: str, folders: Sequence[Path]) -> Space:
    """Returns the space `conf/space/<name>.yaml`. Raises ConfigError if there is none."""
    known = sources.options(GROUP, folders)
    if name not in known:
        near = nearest(name, known)
        raise ConfigError(f"{GROUP}={name}: unknown name{near} (there are: {', '.join(known)})")
    return from_yaml(sources.content(known[name]), sources.label(known[name]))
