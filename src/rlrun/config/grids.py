"""Settings of one algorithm in a grid, `ppo.env.num_envs=8` beside `algo=ppo,sac`, and the words of the jobs."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from functools import cache

from rlrun.config import sources
from rlrun.config.compose import Composer
from rlrun.errors import ConfigError, nearest

OWN = re.compile(r"(?P<sign>[+~]*)(?P<algo>[\w-]+)\.(?P<rest>.+)", re.DOTALL)
SECTIONS = ("algo", "env", "network", "trainer")  # which the settings of an algorithm begin with
OF_ALL = ("algo", "plugins")  # keys that no single algorithm has for itself


def divided(words: Sequence[str], composer: Composer) -> tuple[list[str], dict[str, list[str]], list[str]]:
    """Returns the words of all jobs of a grid, the words of each algorithm without its name, and the faults."""
    shared: list[str] = []
    own: dict[str, list[str]] = {name: [] for name in _trained(words, composer)}
    faults: list[str] = []
    for text in words:
        found = _of_algorithm(text, composer)
        if found is None:
            shared.append(text)
            continue
        key, _, value = found["rest"].partition("=")
        if found["algo"] not in own:
            faults.append(_untrained(text, found["algo"], [*own], composer))
        elif key in OF_ALL:
            faults.append(f"{text}: {key} is a setting of all jobs; add {value} to {key}=...")
        else:
            own[found["algo"]].append(found["sign"] + found["rest"])
    return shared, own, faults


def fault_of_single(text: str, words: Sequence[str], composer: Composer) -> str | None:
    """Returns the fault of a word for one algorithm in a command that trains one run, or None for another word.

    words: those of the command.
    """
    found = _of_algorithm(text, composer)
    if found is None:
        return None
    trained = _trained(words, composer)
    if found["algo"] not in trained:
        return _untrained(text, found["algo"], trained, composer)
    return f"{text}: names an algorithm, as only a grid does (rlrun train -m); type {found['sign']}{found['rest']}"


def combined(composer: Composer, shared: Sequence[str], own: dict[str, list[str]]) -> Iterator[list[str]]:
    """Yields the words of every job, in Hydra's order; the values of words of one algorithm vary last.

    A word of one algorithm replaces the words of all jobs with the same key.
    """
    known: set[tuple[str, ...]] = set()
    for texts in composer.expand(shared):
        words = [composer.read(text) for text in texts]
        algo = next((f"{word.values[0]}" for word in words if word.key == "algo"), "")
        own_words = own.get(algo, [])
        replaced = {composer.read(text).key for text in own_words}
        kept = tuple(word.text for word in words if word.key not in replaced)
        if len(kept) < len(words) and kept in known:
            continue  # an earlier job differs only in words that are replaced
        known.add(kept)
        for own_texts in composer.expand(own_words):
            yield [*kept, *own_texts]


def _of_algorithm(text: str, composer: Composer) -> re.Match[str] | None:
    """Returns the parts of a word that begins with the name of an algorithm, or None for another word.

    A word that begins with an unknown name before a section, as `pp.algo.gamma=0.9` does, counts too.
    """
    found = OWN.fullmatch(text)
    if found is None or _is_section(found["algo"]):
        return None
    first = re.split("[.=]", found["rest"])[0]
    if first in SECTIONS or found["algo"] in sources.options("algo", composer.folders):
        return found
    return None


def _trained(words: Sequence[str], composer: Composer) -> list[str]:
    names: list[str] = []
    for text in words:
        if text.lstrip("+").startswith("algo="):
            with contextlib.suppress(ConfigError):  # reported where all words are read
                names = [f"{name}" for name in composer.read(text).values]
    return names


def _is_section(name: str) -> bool:
    """Returns whether a config has a section or a group of this name."""
    return name in _sections()


@cache
def _sections() -> set[str]:
    return {*sources.content(sources.CONF / "train.yaml"), *sources.groups([sources.CONF])}


def _untrained(text: str, name: str, trained: Sequence[str], composer: Composer) -> str:
    """Returns the fault of a word for an algorithm that the command does not train."""
    line = f"{text}: {name} is not trained here"
    if trained:
        line += f", only {' and '.join(trained)}"
    if name in sources.options("algo", composer.folders):
        return line
    return line + nearest(name, trained)
