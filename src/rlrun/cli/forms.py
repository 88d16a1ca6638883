"""Suggests the settings for command lines of other tools, like `--algo ppo --env CartPole-v1` or `ppo CartPole`."""

import re
import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from rlrun import dotted
from rlrun.config import check, environments, foreign_words, sources
from rlrun.errors import PROGRAM, ConfigError

if TYPE_CHECKING:
    from rlrun.config.compose import Composer

FLAGS = {"-n": "n_timesteps", "-f": "log_folder"}  # short options of RL Zoo
VALUE = re.compile(r"[^-]|-\.?\d")  # start of a value: no dash, unless it is a negative number


def check_form(command: str, words: Sequence[str], options: Sequence[str] = ()) -> None:
    """Raises ConfigError for words in the form of another tool, with the command that was probably meant.

    Raises ConfigError for unknown options too. Other words that are no settings pass; parsing them raises the error.
    options: other words of the command line, copied into the suggested command.
    """
    strange = [word for word in words if not is_setting(word)]
    if not strange:
        return
    if meant := translated(command, words, options):
        raise ConfigError(f"settings are written key=value; did you mean: {meant}")
    if flags := [word for word in strange if word.startswith("-")]:
        raise ConfigError(f"unrecognized arguments: {' '.join(flags)} (rlrun {command} --help)")


def is_setting(word: str) -> bool:
    """Returns whether a word is `key=value`, or `~key`, which deletes a key."""
    return word.startswith("~") or ("=" in word and not word.startswith("-"))


def translated(command: str, words: Sequence[str], options: Sequence[str] = ()) -> str:
    """Returns the suggested command, followed by `?`, or "" if no word corresponds to a setting.

    Words without a corresponding setting are listed after the command.
    """
    from rlrun.config.compose import Composer
    from rlrun.config.jobs import composed

    composer = Composer.of(words)
    chosen: list[str] = []
    settings: list[tuple[str, str | None]] = []
    for word in read(words, {*sources.groups(composer.folders), *composer.compose([]).tree}):
        if isinstance(word, str):
            chosen.append(word)
        elif choice := _choice(*word, composer):
            chosen.append(choice)
        else:
            settings.append(word)
    groups = [word for word in map(composer.read, filter(is_setting, chosen)) if word.is_group and word.values]
    tree = composed(composer, groups, required=())[0].tree
    given = {word.key for word in groups}
    translations = []
    left_out = []
    for name, value in dict.fromkeys(settings):
        if setting := _setting(name, value, tree):
            translations.append(setting)
        else:
            left_out.append(f"{name} {value or ''}".strip())
    if not translations and not set(chosen) - set(words):
        return ""
    lacking = []
    if command == "train":
        lacking = [f"{group}=..." for group in ("algo", "env") if group not in given]
    text = f"{shlex.join([PROGRAM, command, *options, *chosen, *lacking, *translations])}?"
    if left_out:
        text += f" (left out: {', '.join(left_out)})"
    return text


def read(words: Sequence[str], names: Collection[str]) -> list[str | tuple[str, str | None]]:
    """Parses words. Settings are returned unchanged, other words as (flag or name, value), ("", value) or (flag, None).

    names: groups and keys; the word after one of them may be its value.
    """
    found: list[str | tuple[str, str | None]] = []
    rest = [*words]
    while rest:
        word = rest.pop(0)
        follows = bool(rest) and VALUE.match(rest[0]) is not None and not is_setting(rest[0])
        flag, equals, value = word.partition("=")
        if is_setting(word):
            found.append(word)
        elif equals:
            found.append((flag, value))
        elif word.startswith("-"):
            found.append((word, rest.pop(0)) if follows else (word, None))
        elif follows and (word in names or "." in word):
            found.append((word, rest.pop(0)))
        else:
            found.append(("", word))
    return found


def _choice(name: str, value: str | None, composer: "Composer") -> str | None:
    """Returns `group=name` if the value names a choice in a group, else None."""
    group = foreign_words.plain(FLAGS.get(name, name))
    group = foreign_words.KEYS.get(group, (group,))[0]
    if value is None or "." in group:
        return None
    homes = [group]
    if not group:
        homes = [*sources.groups(composer.folders)]
    for home in homes:
        names = {known.lower(): known for known in sources.options(home, composer.folders)}
        if value.lower() in names:
            return f"{home}={names[value.lower()]}"
    if group == "env" or (not group and environments.fault(value, ()) is None):
        return f"env={value}"
    if group == "algo":
        return f"algo={value}"
    return None


def _setting(name: str, value: str | None, tree: dict[str, Any]) -> str | None:
    """Returns `key=value` if a key with the same kind of value corresponds to the name, else None.

    A flag without a value sets a boolean key to true.
    """
    name = foreign_words.plain(FLAGS.get(name, name))
    keys = [name]
    if dotted.lookup(name, tree) is dotted.ABSENT:
        keys = check.same_meaning(name, tree)
    if not keys or " " in keys[0]:  # a key with a note takes another kind of value
        return None
    known = dotted.lookup(keys[0], tree)
    if value is None and isinstance(known, bool):
        value = "true"
    if value is None or isinstance(known, dict):
        return None
    return f"{keys[0]}={value}"
