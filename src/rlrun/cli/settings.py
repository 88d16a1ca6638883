"""Parses the `key=value` words of commands that compose no config, such as resume, eval and report."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlrun import dotted
from rlrun.config.resumable import setting
from rlrun.errors import ConfigError, closest, did_you_mean, nearest

NAMES_CODE = ("algo", "env", "network")  # settings that may hold the path of a Python file

Rule = tuple[str, Callable[[object], bool]]  # what the value must be, as text, and the function that checks it
NOTHING: Mapping[str, Any] = MappingProxyType({})


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


WHOLE: Rule = ("a whole number, at least 0", lambda value: type(value) is int and value >= 0)
COUNT: Rule = ("a whole number, at least 1", lambda value: type(value) is int and value >= 1)
FLAG: Rule = ("true or false", lambda value: isinstance(value, bool))
TEXT: Rule = ("a path", lambda value: isinstance(value, str) and bool(value))
LOGGERS: Rule = ("a list: logger=[console,csv]", lambda value: isinstance(value, str | list))
NAMES: Rule = ("a list: plugins=[my_package,./my_file.py]", _are_names)


def choices(rule: Rule) -> list[str]:
    """Returns the words that the text of a rule lists as values. There are none if any text is valid."""
    text, is_valid = rule
    if is_valid("any text"):
        return []
    flags = {"true": True, "false": False}
    return [word for word in re.findall("[a-z]+", text) if is_valid(flags.get(word, word))]


def read(
    words: Sequence[str],
    rules: Mapping[str, Rule],
    options: Sequence[str] = (),
    open_keys: str = "",
    values: Mapping[str, Any] = NOTHING,
) -> tuple[list[str], dict[str, Any]]:
    """Returns the positional words, and the settings by key; a given option is True.

    Raises one ConfigError with all faults.

    Keys that begin with `open_keys` and a dot are not checked here; with `open_keys="*"`, no key with a dot is checked.
    values: further settings, by key.
    """
    settings: dict[str, Any] = {word: True for word in words if word in options}
    places = [word for word in words if word not in options and not is_setting(word)]
    faults: list[str] = []
    for key, value, text in _given(words, values):
        if key.startswith(f"{open_keys}.") or (open_keys == "*" and "." in key):
            settings[key] = value
        elif key not in rules:
            file = text.strip("'\"").partition(":")[0]
            meant = nearest(key, rules)
            names_code = key in NAMES_CODE and file.endswith(".py")
            if "plugins" in rules and names_code:  # repeated from the command that started the run
                meant = did_you_mean(f"plugins=[{file}]")
            faults.append(f"{key}: unknown key{meant} ({_known(rules, open_keys)})")
        elif not rules[key][1](value):
            faults.append(f"{key}={text}: must be {rules[key][0]}")
        else:
            settings[key] = value
    for word in places:
        if word.startswith("-"):
            faults.append(_option_fault(word, rules, options))
        elif not word:
            faults.append("'': an empty word; a folder must have a name")
    if faults:
        raise ConfigError(*faults)
    return places, settings


def is_setting(word: str) -> bool:
    """Returns whether a word is of the form `key=value`; a path may hold an equals sign too."""
    key, equals, _ = word.partition("=")
    return bool(equals) and "/" not in key


def _given(words: Sequence[str], values: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yields key, value and the value as text of every setting, whole numbers as int."""
    for word in filter(is_setting, words):
        yield *setting(word), word.partition("=")[2]
    for key, value in values.items():
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        yield key, value, dotted.show(value)


def _known(rules: Mapping[str, Rule], open_keys: str) -> str:
    """Returns a text that lists the keys of a command."""
    known = [*rules]
    if open_keys:
        known.append(f"{open_keys}.<key>".replace("*", "<section>"))
    if not known:
        return "this command has no settings"
    return f"there are: {', '.join(known)}"


def _option_fault(word: str, rules: Mapping[str, Rule], options: Sequence[str]) -> str:
    """Returns the fault of an unknown flag, with the option or setting of a similar name if there is one."""
    near = closest(word.lstrip("-").replace("-", "_"), rules)
    meant = near and f"{near}=..."
    for option in options:
        if option.startswith(f"--{word.lstrip('-')[:1]}"):
            meant = option
    return f"unknown option {word}{did_you_mean(meant)}"


def one_run(places: Sequence[str], usage: str) -> str:
    """Returns the only positional word. Raises ConfigError if there is none or more than one."""
    if not places:
        raise ConfigError(f"no run given; usage: {usage}")
    if len(places) > 1:
        raise ConfigError(f"one run at a time; usage: {usage}")
    return places[0]


def run_folder(places: Sequence[str], usage: str) -> Path:
    """Returns the only positional word as a folder. Raises ConfigError if there is not one word or no such folder."""
    path = Path(one_run(places, usage))
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder")
    return path
