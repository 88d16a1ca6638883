"""The section `logger` of a config: its earlier form with switches, and the words of a resume that change it."""

import copy
from collections.abc import Iterable, Mapping

from rlrun import dotted
from rlrun.config import declared, sources
from rlrun.errors import ConfigError, nearest
from rlrun.imports import is_there, named_packages

SECTION = "logger"
SWITCHES = (f"{SECTION}.console", f"{SECTION}.tensorboard")  # keys with true or false, valid for one more version


def is_switch(key: str, value: object) -> bool:
    """Returns whether a setting is of the earlier form, like `logger.console=false`."""
    return key in SWITCHES and isinstance(value, bool)


def switched(section: Mapping[str, object] | None) -> dict[str, object]:
    """Returns the loggers of a section, in which a logger may be true or false instead of its settings."""
    loggers: dict[str, object] = {}
    if not section:
        return loggers
    for name, settings in section.items():
        if settings is True:
            settings = {}
        if settings is not False:
            loggers[name] = settings
    return loggers


def hint(words: Iterable[str]) -> str:
    """Returns a line about the current form of the switches on a command line, or "" if it has none."""
    typed = []
    for word in words:
        key = word.lstrip("+").partition("=")[0]
        if key in SWITCHES:
            typed.append(word)
    if not typed:
        return ""
    now = f"{SECTION}=[console] or {SECTION}=[]"
    return f"{' '.join(typed)}: valid for one more version; write a list of the loggers that are on, like {now}"


def named(words: Mapping[str, object]) -> set[str]:
    """Returns the loggers that the words of a resume name: `logger=[csv]`, `logger.wandb.project=mine`."""
    names = set(_listed(words.get(SECTION, [])))
    for key in words:
        section, _, rest = key.partition(".")
        if section == SECTION and rest:
            names.add(rest.partition(".")[0])
    return names


def folded(words: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """Returns the words of a resume, with all words about loggers combined into one: the new section `logger`.

    values: the stored config. Raises ConfigError for loggers that do not exist or are not chosen.
    """
    section = values.get(SECTION)
    rest = {key: value for key, value in words.items() if key.partition(".")[0] != SECTION}
    if len(rest) == len(words):
        return rest
    chosen = words.get(SECTION, section)
    if not isinstance(chosen, dict):
        chosen = {name: _settings(name, section) for name in _listed(chosen)}
    chosen = copy.deepcopy(chosen)
    for key, value in words.items():
        if is_switch(key, value):
            chosen[key.partition(".")[2]] = value
        elif key not in (*rest, SECTION):
            _set(chosen, key, value)
    return rest | {SECTION: switched(chosen)}


def not_chosen(name: str, chosen: Iterable[str]) -> str:
    """Returns the end of a message about a setting of a logger that is not chosen."""
    return f"; choose the logger with {SECTION}=[{','.join([*chosen, name])}]"


def _listed(value: object) -> list[str]:
    """Returns the names in the value of `logger`: a list, one name, or a section."""
    if isinstance(value, list | dict):
        return [str(name) for name in value]
    if not value:
        return []
    return [str(value)]


def defaults(name: str) -> dict[str, object]:
    """Returns the settings of a logger before a user has changed any. Raises ConfigError for an unknown name.

    They are those of its YAML file, or of its Config in a Python file that the user has named.
    """
    where = sources.folders(filter(is_there, named_packages()))
    known = sources.options(SECTION, where)
    if name not in known:
        names = ", ".join(known)
        raise ConfigError(f"{SECTION}={name}: unknown name{nearest(name, known)} (there are: {names})")
    part = declared.find(SECTION, name, sources.python_files(where))
    if part is not None and part.file == known[name]:
        return part.values()
    settings: dict[str, object] = sources.content(known[name])[name]
    return settings


def _settings(name: str, section: object) -> object:
    """Returns the stored settings of a logger, or its defaults if it was not chosen before."""
    if isinstance(section, dict) and name in section:
        return section[name]
    return defaults(name)


def _set(section: dict[str, object], key: str, value: object) -> None:
    """Sets a value in a section, like `logger.wandb.project`. Raises ConfigError for a logger that is not chosen."""
    _, name, *path = key.split(".")
    home = section.get(name)
    if not path or not isinstance(home, dict):
        raise ConfigError(f"{key}: unknown key{not_chosen(name, section)}")
    dotted.put(".".join(path), value, home)
