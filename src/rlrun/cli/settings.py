"""Parses the `key=value` words of commands that compose no config, such as resume, eval and report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rlrun import dotted
from rlrun.config.resumable import setting
from rlrun.errors import ConfigError, closest, did_you_mean

CODE_GROUPS = ("algo", "env", "network")  # config groups in which a choice may be the path of a Python file
NOTHING: Mapping[str, Any] = MappingProxyType({})


class ValueRule(NamedTuple):
    """The values that a setting accepts."""

    text: str  # the end of the message "must be ..."
    is_valid: Callable[[Any], bool]
    choices: Sequence[str] = ()  # values that the shell completes


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


WHOLE = ValueRule("a whole number, at least 0", lambda value: type(value) is int and value >= 0)
COUNT = ValueRule("a whole number, at least 1", lambda value: type(value) is int and value >= 1)
FLAG = ValueRule("true or false", lambda value: isinstance(value, bool), ("true", "false"))
TEXT = ValueRule("a text", _is_text)
PATH = ValueRule("a path", _is_text)
LOGGERS = ValueRule("a list: logger=[console,csv]", lambda value: isinstance(value, str | list))
NAMES = ValueRule("a list: plugins=[my_package,./my_file.py]", _are_names)
CALLBACKS = ValueRule("a list: callbacks=[{name: my_callback}]", lambda value: isinstance(value, list))


def read(
    words: Sequence[str],
    rules: Mapping[str, ValueRule],
    options: Sequence[str] = (),
    open_keys: str = "",
    values: Mapping[str, Any] = NOTHING,
) -> tuple[list[str], dict[str, Any]]:
    """Returns the positional words, and the settings by key; an option such as `--yes` has the value True.

    open_keys: a section whose keys are not checked here, or "*" for all sections. values: further settings by key.
    Raises one ConfigError with all faults.
    """
    settings: dict[str, Any] = {word: True for word in words if word in options}
    places = [word for word in words if word not in options and not is_setting(word)]
    faults: list[str] = []
    for key, value, text in _given(words, values):
        if _is_open(key, open_keys):
            settings[key] = value
        elif key not in rules:
            suggestion = closest(key, rules)
            file = text.strip("'\"").partition(":")[0]
            if "plugins" in rules and key in CODE_GROUPS and file.endswith(".py"):  # as in the command of the run
                suggestion = f"plugins=[{file}]"
            faults.append(f"{key}: unknown key{did_you_mean(suggestion)} ({_known(rules, open_keys)})")
        elif not rules[key].is_valid(value):
            faults.append(f"{key}={text}: must be {rules[key].text}")
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
    """Returns whether a word is of the form `key=value`. A path such as `runs/seed=1` is not."""
    key, equals, _ = word.partition("=")
    return bool(equals) and "/" not in key


def _is_open(key: str, open_keys: str) -> bool:
    """Returns whether a key is not checked here."""
    if open_keys == "*":
        return "." in key
    return bool(open_keys) and key.startswith(f"{open_keys}.")


def _given(words: Sequence[str], values: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yields key, value and the value as text of every setting."""
    for word in filter(is_setting, words):
        key, value = setting(word)
        yield key, value, word.partition("=")[2]
    for key, value in values.items():
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 1e6 is a whole number, as in a word
        yield key, value, dotted.show(value)


def _known(rules: Mapping[str, ValueRule], open_keys: str) -> str:
    """Returns a text that lists the keys of a command."""
    known = [*rules]
    if open_keys:
        known.append(f"{open_keys}.<key>".replace("*", "<section>"))
    if not known:
        return "this command has no settings"
    return f"there are: {', '.join(known)}"


def _option_fault(word: str, rules: Mapping[str, ValueRule], options: Sequence[str]) -> str:
    """Returns the fault of an unknown option, with the option or setting of a similar name if there is one."""
    name = word.lstrip("-").replace("-", "_")
    known = {key: f"{key}=..." for key in rules}
    for option in options:
        known[option.lstrip("-")] = option
        known.setdefault(option[2], option)  # -y for --yes
    near = closest(name, known)
    suggestion = None
    if near is not None:
        suggestion = known[near]
    return f"unknown option {word}{did_you_mean(suggestion)}"


def one_run(places: Sequence[str], usage: str) -> str:
    """Returns the only positional word, a run. Raises ConfigError if there is none or more than one."""
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
