"""Checks the configs of the runs of a stored sweep, like the config of a stored run: the folder may be untrusted.

The words and ranges in sweep.yaml are data. Settings that reach outside of the sweep's folder must be typed again. The
words are checked when the sweep is read, and the composed config of each run before it starts.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlrun import dotted
from rlrun.config import sources
from rlrun.config.compose import Composer
from rlrun.config.jobs import jobs_of
from rlrun.config.reach import CODE, Reach, reaches, texts
from rlrun.config.resumable import setting
from rlrun.errors import ConfigError
from rlrun.imports import module_of
from rlrun.sweep.space import Space

TRIED_S = 30.0  # for trying the environments of a sweep one after the other; the last one may take longer
TIMEOUT = "env.timeout_s"  # may be typed to try each environment for longer; it changes no run


def check_words(words: Sequence[str], typed: Sequence[str]) -> list[Reach]:
    """Raises ConfigError if the words of a run name code, a preset's file or other settings that the user did not type.
    Returns these settings, which the user has all typed again.

    To be called before the words are composed: composing reads the preset, looks for the code, and imports plug-ins to
    find an unknown environment. References are refused here, because their values differ between trials, so that no
    composed config shows them all.
    """
    composer = Composer(sources.folders())
    groups = sources.groups([sources.CONF])
    found: list[Reach] = []
    config_dirs, others = sources.config_dirs(words)
    found += map(_of_config_dir, config_dirs)
    for word in map(composer.read, others):
        if len(word.values) > 1:  # before the files that they name are looked at
            raise ConfigError(f"{word.text}: several values; a sweep accepts only one")
        for value in word.values:
            if "$" in word.text:  # in every form of a reference: ${a}, $\{a\}
                found.append(
                    Reach(word.key, value, "refers to settings that differ between trials, and may name code or files")
                )
            elif word.key == "plugins":
                found.append(Reach("plugins", value, CODE))
            elif word.key in ("env", "env.id") and module_of(str(value)) is not None:
                found.append(Reach("env", value, CODE))
            elif word.key == "preset" and str(value).endswith(".yaml"):
                found.append(Reach("preset", value, "reads settings from a file"))
            elif word.key in groups and ".py" in word.raw:
                found.append(Reach("plugins", [value], CODE))
    _check(found, typed)
    return found


def check_runs(
    configs: Sequence[dict[str, Any]], space: Space, typed: Sequence[str], confirmed: Iterable[Reach]
) -> None:
    """Raises ConfigError if runs of a sweep reach outside of its folder without a typed word that confirms it, if a
    typed word confirms nothing, if an environment must not be made in this process, or if trying them takes too long.

    configs: the composed config of each environment. space: the values of trials. confirmed: the result of check_words.
    """
    found = [reach for values in configs for reach in (*_reaches(values), *_searched(values, space))]
    _check(found, typed)
    for word in typed:
        is_confirming = any(_confirms(word, reach) for reach in (*found, *confirmed))
        if not is_confirming and setting(word)[0] != TIMEOUT:
            raise ConfigError(f"{word}: cannot change in a sweep that has begun")
    until = time.monotonic() + TRIED_S
    known = dict(map(setting, typed))
    own = {key: value for key, value in known.items() if key == TIMEOUT}
    for values in configs:
        env = values["env"]
        if any(
            env[section] for section in ("kwargs", "eval_kwargs", "task_kwargs", "index_kwarg", "wrappers", "schedule")
        ):
            from rlrun.config.schema import run_config
            from rlrun.run.untrusted import check_environment  # imports torch
            from rlrun.settings import registry

            if not own and time.monotonic() > until:
                raise ConfigError(f"env: trying all environments takes above {TRIED_S:g} s; more with {TIMEOUT}=60")
            registry.load(values["plugins"])
            check_environment(run_config(dotted.replaced(values, own)).env, known)


class Confirmed:
    """The words that the user typed again. They confirm how the runs of a stored sweep reach outside of its folder."""

    def __init__(self, typed: Sequence[str]):
        self.typed = typed
        self._composer = Composer.of(typed)  # looks for no other plug-ins

    def check_run(self, words: Sequence[str]) -> Mapping[str, object]:
        """Returns the config that the words of a run compose. Raises ConfigError if it reaches outside unconfirmed.

        To be called before the run starts, because `rlrun train` trusts its words.
        """
        config_dirs, _ = sources.config_dirs(words)
        _check(map(_of_config_dir, config_dirs), self.typed)
        plugins = sources.named_plugins(words)
        if plugins:  # composing may import them
            _check([Reach("plugins", plugins, CODE)], self.typed)
        (job,) = jobs_of(words, self._composer)
        _check(_reaches(job.values), self.typed)
        return job.values


def _of_config_dir(word: str) -> Reach:
    return Reach(sources.CONFIG_DIR, word.partition("=")[2], "reads settings from a folder")


def _check(found: Iterable[Reach], typed: Sequence[str]) -> None:
    faults = [reach.line for reach in found if not any(_confirms(word, reach) for word in typed)]
    if faults:
        raise ConfigError(*faults)


def _confirms(word: str, reach: Reach) -> bool:
    return word == reach.word or setting(word) == (reach.key, reach.value)


def _reaches(values: Mapping[str, Any]) -> Iterator[Reach]:
    """Yields the settings with which runs with this config reach outside."""
    yield from reaches(values)
    if sources.is_preset_path(values["preset"] or ""):
        yield Reach("preset", values["preset"], "reads settings from a file")


def _searched(values: Mapping[str, Any], space: Space) -> Iterator[Reach]:
    """Yields the values of ranges with which runs with this config reach outside."""
    for dimension in space.dimensions:
        for value in dimension.range.ends():
            if not isinstance(value, int | float):  # numbers reach nowhere
                yield from (Reach("plugins", [text], CODE) for text in texts(value) if ".py" in text)
                yield from reaches(dotted.replaced(values, {dimension.key: value}))
