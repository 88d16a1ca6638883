"""`key=value` words of the commands that compose nothing: resume, eval, show, list."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlrun.config import check
from rlrun.config.resumable import setting
from rlrun.errors import ConfigError

Rule = tuple[str, Callable[[Any], bool]]  # what the value must be, and whether it is


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


WHOLE: Rule = ("a whole number, at least 0", lambda value: type(value) is int and value >= 0)
COUNT: Rule = ("a whole number, at least 1", lambda value: type(value) is int and value >= 1)
FLAG: Rule = ("true or false", lambda value: isinstance(value, bool))
TEXT: Rule = ("a path", lambda value: isinstance(value, str) and bool(value))
NAMES: Rule = ("a list: plugins=[my_package,./my_file.py]", _are_names)


def read(words: Sequence[str], rules: Mapping[str, Rule], open_keys: str = "") -> tuple[list[str], dict[str, Any]]:
    """Positional words, and the settings. Keys that begin with `open_keys` and a dot are not checked here; with
    `open_keys="*"` all keys with a dot are not. ConfigError holds all faults at once."""
    places: list[str] = []
    settings: dict[str, Any] = {}
    faults: list[str] = []
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or "/" in key:
            places.append(word)
            continue
        _, value = setting(word)
        if key.startswith(f"{open_keys}.") or (open_keys == "*" and "." in key):
            settings[key] = value
        elif key not in rules:
            faults.append(f"{key}: unknown key{check.nearest(key, rules)} ({_known(rules, open_keys)})")
        elif not rules[key][1](value):
            faults.append(f"{key}={text}: must be {rules[key][0]}")
        else:
            settings[key] = value
    for word in places:
        if word.startswith("-"):
            faults.append(_option_fault(word, rules))
    if faults:
        raise ConfigError(*faults)
    return places, settings


def _known(rules: Mapping[str, Rule], open_keys: str) -> str:
    """The keys of a command, in words."""
    known = [*rules]
    if open_keys:
        known.append(f"{open_keys}.<key>".replace("*", "<section>"))
    if not known:
        return "there are none here"
    return f"there are: {', '.join(known)}"


def _option_fault(word: str, rules: Mapping[str, Rule]) -> str:
    """Why a flag is refused, with the setting of its name if there is one."""
    near = check.closest(word.lstrip("-").replace("-", "_"), rules)
    return f"unknown option {word}{check.did_you_mean(near and f'{near}=...')}"


def one_run(places: Sequence[str], usage: str) -> str:
    """The only positional word. Raises ConfigError for none or several."""
    if not places:
        raise ConfigError(f"no run given; usage: {usage}")
    if len(places) > 1:
        raise ConfigError(f"one run at a time; usage: {usage}")
    return places[0]
