"""Command lines as other tools take them, `--algo ppo --env CartPole-v1 -n 100000` or `ppo CartPole`, put into ours."""

import re
import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from rlrun.config import check, environments, foreign_words, sources
from rlrun.errors import ConfigError

if TYPE_CHECKING:
    from rlrun.config.compose import Composer

FLAGS = {"-n": "n_timesteps", "-f": "log_folder"}  # of RL Zoo
VALUE = re.compile(r"[^-]|-\.?\d")  # how a value begins: not with a dash, unless it is a negative number


def check_form(command: str, words: Sequence[str], options: Sequence[str] = ()) -> None:
    """ConfigError with the command that was probably meant where a word is no setting.

    options: what else the command line holds, which stays as it is.
    """
    strange = [word for word in words if not is_setting(word)]
    if not strange:
        return
    if meant := translated(command, words, options):
        raise ConfigError(f"settings are written key=value; did you mean: {meant}")
    if flags := [word for word in strange if word.startswith("-")]:
        raise ConfigError(f"unrecognized arguments: {' '.join(flags)} (rlrun {command} --help)")


def is_setting(word: str) -> bool:
    """Whether it is `key=value`, or `~key`, which takes a key away."""
    return word.startswith("~") or ("=" in word and not word.startswith("-"))


def translated(command: str, words: Sequence[str], options: Sequence[str] = ()) -> str:
    """The command with every word that has a meaning as a setting, and `?`; "" where no word has one.

    What has none is named behind it.
    """
    from rlrun.config.compose import Composer
    from rlrun.config.jobs import composed

    composer = Composer(sources.folders(sources.named_plugins(words)))
    chosen: list[str] = []
    settings: list[tuple[str, str | None]] = []
    for word in read(words, {*sources.groups(composer.folders), *composer.compose([]).tree}):
        choice = _choice(*word, composer) if isinstance(word, tuple) else word
        if choice is None:
            settings.append(word)
        else:
            chosen.append(choice)
    groups = [word for word in map(composer.read, filter(is_setting, chosen)) if word.is_group]
    tree = composed(composer, groups, required=())[0].tree
    found = {word: _setting(*word, tree) for word in settings}
    if not any(found.values()) and not set(chosen) - set(words):
        return ""
    given = {word.key for word in groups}
    lacking = [f"{group}=..." for group in ("algo", "env") if command == "train" and group not in given]
    text = shlex.join(["rlrun", command, *options, *chosen, *lacking, *filter(None, found.values())])
    left = [" ".join(filter(None, word)) for word, setting in found.items() if setting is None]
    return f"{text}?" + (f" (left out: {', '.join(left)})" if left else "")


def read(words: Sequence[str], names: Collection[str]) -> list[Any]:
    """Settings as they are; everything else as (flag or name, value), ("", value) or (flag, None).

    names: of groups and keys, which may be followed by their value.
    """
    found: list[Any] = []
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
            found.append((word, rest.pop(0) if follows else None))
        elif follows and (word in names or "." in word):
            found.append((word, rest.pop(0)))
        else:
            found.append(("", word))
    return found


def _choice(name: str, value: str | None, composer: "Composer") -> str | None:
    """`group=name` for what chooses one; None for what does not."""
    group = foreign_words.plain(FLAGS.get(name, name))
    group = foreign_words.KEYS.get(group, (group,))[0]
    if value is None or "." in group:
        return None
    for home in [group] if group else sources.groups(composer.folders):
        names = {known.lower(): known for known in sources.options(home, composer.folders)}
        if value.lower() in names:
            return f"{home}={names[value.lower()]}"
    if group == "env" or (not group and environments.fault(value, ()) is None):
        return f"env={value}"
    return f"algo={value}" if group == "algo" else None


def _setting(name: str, value: str | None, tree: dict[str, Any]) -> str | None:
    """`key=value` where the value means the same here; a flag alone is `true`."""
    name = foreign_words.plain(FLAGS.get(name, name))
    keys = [name] if check.lookup(name, tree) is not check.ABSENT else check.same_meaning(name, tree)
    if not keys or " " in keys[0]:  # a note says that the value differs
        return None
    known = check.lookup(keys[0], tree)
    if isinstance(known, dict) or (value is None and not isinstance(known, bool)):
        return None
    return f"{keys[0]}={'true' if value is None else value}"
