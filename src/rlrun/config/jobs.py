"""Turns the arguments of `rlrun train` into the config of every job, or reports all faults at once.

An argument such as `algo=sac` is called a word.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rlrun import dotted
from rlrun.config import check, environments, foreign_words, grids, loggers, preset_files, sources
from rlrun.config.compose import NO_PRESET, Composer, Composition, Word, choice
from rlrun.errors import ConfigError, closest, did_you_mean

T = TypeVar("T")
U = TypeVar("U")

REQUIRED = ("algo", "env")  # groups without a default


@dataclass(frozen=True)
class Job:
    """One run to train."""

    words: list[str]  # as typed; in a grid, with the values of this job
    values: dict[str, Any]  # the composed config, with interpolations resolved


def add_m(word: Word) -> str:
    """Returns the advice about a word with several values, for a command that trains one run."""
    return "add -m to run a job for each"


def jobs(
    words: Sequence[str],
    multirun: bool = False,
    several: Callable[[Word], str] = add_m,
) -> list[Job]:
    """Returns the jobs of a command line, checked as far as that needs no torch.

    words: also `--config-dir=DIR`, with which no run is stored.
    several: returns the advice about a word with several values, if the command line is not one of several runs.
    Raises one ConfigError with one line for each fault.
    """
    typed = sources.named_plugins(words)
    words = sources.by_name(words)
    if multirun:
        words = sources.by_name(words, sources.algorithms(words))
    found = jobs_of(words, Composer.of(words), multirun, several)
    files = [file for file in sources.named_plugins(words) if file not in typed]
    return [_without_unused(job, files) for job in found]


def jobs_of(
    words: Sequence[str], composer: Composer, multirun: bool = False, several: Callable[[Word], str] = add_m
) -> list[Job]:
    """As `jobs`, for words in which `sources.by_name` has replaced the Python files by names.

    A composer remembers what it has composed, so command lines with the same plug-ins should share one.
    """
    own: dict[str, list[str]] = {}
    faults: list[str] = []
    _, words = sources.config_dirs(words)
    if multirun:
        words, own, faults = grids.divided(words, composer)

    def allowed(texts: Sequence[str]) -> list[str]:
        plain: list[str] = []
        for text in texts:
            fault = grids.fault_of_single(text, words, composer)
            if fault is not None:
                faults.append(fault)
                continue
            try:
                plain += _single(composer.read(text), multirun, several, faults)
            except ConfigError as error:
                faults.extend(error.faults)
        return plain

    def job_of(texts: list[str]) -> Job:
        return _job(composer, [composer.read(text) for text in texts])

    shared = allowed(words)
    own = {algo: allowed(texts) for algo, texts in own.items()}
    try:
        found = for_all([*grids.combined(composer, shared, own)], job_of, list)
    except ConfigError as error:
        faults += error.faults
    if faults:
        raise ConfigError(*faults)
    if not found:
        raise ConfigError(f"{' '.join(words)}: this grid has no jobs")
    return found


def _without_unused(job: Job, files: Sequence[str]) -> Job:
    """Returns the job without files that another job of its grid has chosen, so that the run does not record them.

    files: those named in choices such as `algo=./my_algo.py,ppo`. One with several parts may serve other jobs too.
    """
    chosen = [value for _, value in dotted.leaves(job.values)]
    needed = []
    for file in job.values["plugins"]:
        parts = sources.parts_of(file) if file in files else ()
        if len(parts) != 1 or parts[0].name in chosen:
            needed.append(file)
    if needed == job.values["plugins"]:
        return job
    words = [word for word in job.words if not word.startswith("plugins=")]
    return Job([*words, *sources.plugins_word(needed)], job.values | {"plugins": needed})


def for_all(jobs: Sequence[T], work: Callable[[T], U], words: Callable[[T], list[str]]) -> list[U]:
    """Calls `work` for every job and returns the results.

    A ConfigError for one job does not stop the others; at the end, one ConfigError with all faults is raised. If only
    some jobs have a fault, its line ends with words of the first of these jobs: the words that not all jobs share.
    """
    done: list[U] = []
    faults: dict[str, list[T]] = {}
    for job in jobs:
        try:
            done.append(work(job))
        except ConfigError as error:
            for fault in error.faults:
                faults.setdefault(fault, []).append(job)
    if not faults:
        return done
    shared = set.intersection(*(set(words(job)) for job in jobs))
    lines = []
    for fault, faulty in faults.items():
        if len(faulty) < len(jobs):
            fault += f" ({' '.join(own_words(words(faulty[0]), shared))})"
        lines.append(fault)
    raise ConfigError(*lines)


def own_words(words: Iterable[str], shared: Iterable[str]) -> list[str]:
    """Returns the words of a job that not all jobs of its grid share, except its plug-ins."""
    return [word for word in words if word not in shared and not word.startswith("plugins=")]


def choose(
    composer: Composer, words: Iterable[Word], required: Sequence[str] = REQUIRED
) -> tuple[list[str], set[str], list[str]]:
    """Returns valid group choices, the groups without a valid choice, and the faults.

    A wrong name is replaced by the most similar valid name, so that the other words can still be checked.
    """
    typed: dict[str, Word] = {}
    choices: list[str] = []
    unknown: set[str] = set()
    faults: list[str] = []
    words = list(words)
    plugins = sources.named_plugins(word.text for word in words)
    for word in words:
        if not word.is_group:
            continue
        group = word.text.partition("=")[0].lstrip("+")
        if group in typed:
            faults.append(f"{word.text}: {group} is chosen twice, first by {typed[group].text}")
        typed[group] = word
    for group in dict.fromkeys((*required, *typed)):
        names = list(sources.options(group, composer.folders))
        if group not in typed:
            faults.append(f"{group}: missing; choose one with {group}=... ({_some(names)})")
            unknown.add(group)
            continue
        fault = _choice_fault(typed[group], names, plugins)
        if fault is None:
            choices.append(typed[group].for_hydra)
            continue
        faults.append(fault)
        guess = closest(str(typed[group].values[0]), names)
        if guess is None:
            unknown.add(group)
        else:
            choices.append(choice(group, guess))
    return choices, unknown, faults


def composed(
    composer: Composer, words: Sequence[Word], required: Sequence[str] = REQUIRED
) -> tuple[Composition, list[str], set[str], list[str]]:
    """Composes the choices of `choose`. Returns the composition, the choices, the groups without a valid choice, and
    the faults.

    Choices of parts, such as `algo.buffer=prioritized`, come last, and those of parts of parts after them: which parts
    exist depends on the other choices.
    """
    choices, unknown, faults = choose(composer, [word for word in words if not word.is_part], required)
    composition = composer.compose(choices)
    part_words = [word for word in words if word.is_part and word.section not in unknown]
    for depth in sorted({word.depth for word in part_words}):
        present = []
        for word in part_words:
            if word.depth != depth:
                continue
            if dotted.lookup(word.key, composition.tree) is dotted.ABSENT:
                faults.append(_part_fault(word, composition))
            else:
                present.append(word)
        parts, _, more = choose(composer, present, required=())
        choices += parts
        faults += more
        composition = composer.compose(choices)
    return composition, choices, unknown, faults


def _part_fault(word: Word, composition: Composition) -> str:
    """Returns the fault of choosing a part that the algorithm (or the network) does not have."""
    parts = []
    for group in sources.groups(composition.contents.folders):
        is_present = dotted.lookup(group, composition.tree) is not dotted.ABSENT
        if group.startswith(f"{word.section}.") and is_present:
            parts.append(group)
    line = f"{word.text}: {word.section}={composition.choices[word.section]} has no part {word.key}"
    if parts:
        line += f"; its parts are {', '.join(parts)}"
    return line


def _job(composer: Composer, words: Sequence[Word]) -> Job:
    composition, choices, unknown, faults = composed(composer, words)
    good = []
    for word in words:
        if word.is_group or word.section in unknown:
            continue
        found = list(word_faults(word, composition.tree))
        if found:
            faults += found
        else:
            good.append(word)
    values = composition.values(good)
    if sources.is_preset_path(values["preset"] or ""):
        others = [word for word in choices if not word.startswith("preset=")]
        without = composer.compose([*others, choice("preset", NO_PRESET)]).values(good)
        faults += preset_files.added(values["preset"], values, without)
    lacking: list[str] = []
    if not unknown:
        lacking = list(check.missing(values))
    loop_faults: list[str] = []
    if any(line.startswith("algo.loop.") for line in lacking):
        loop_faults = list(_loop_faults(values["algo"]))
    if loop_faults:
        faults += loop_faults
    elif lacking:
        faults += lacking
    else:
        faults += _type_faults(values)
    if faults:
        raise ConfigError(*faults)
    return Job([word.text.lstrip("+") for word in words], values)


def _loop_faults(algo: dict[str, Any]) -> Iterator[str]:
    """Yields why an algorithm does not support its loop, which explains the missing keys of the loop."""
    from rlrun.loops.around import around_algorithm  # imports torch, which takes a second; only this fault needs it
    from rlrun.settings import registry

    try:
        yield from registry.lookup("loop", algo["loop"]["name"]).requires(algo["loop"], around_algorithm(algo))
    except ConfigError as error:
        yield from error.faults


def _type_faults(values: dict[str, object]) -> Sequence[str]:
    """Returns faults in the types and ranges of all settings.

    Those of the algorithm are not checked, because its class imports torch.
    """
    from rlrun.config.schema import run_config  # imports pydantic, a quarter of the start-up time of `rlrun show`

    named = {"algo": values.get("algo", {}), "name": values["name"] or ""}  # missing if a group has no valid choice
    try:
        run_config(values | named)
    except ConfigError as error:
        return error.faults
    return ()


def word_faults(word: Word, tree: dict[str, Any]) -> Iterator[str]:
    """Yields the faults of one setting; in a grid, those of all its values."""
    if word.is_deletion:
        if not check.is_open(word.key, tree) or dotted.lookup(word.key, tree) is dotted.ABSENT:
            yield f"{word.text}: only keys in {', '.join(check.OPEN)} can be deleted"
        return
    chosen = tree.get(loggers.SECTION) or {}
    for value in word.values:
        yield from check.refused(value, word.key)
        if loggers.is_switch(word.key, value):
            continue
        if word.section == loggers.SECTION:
            name = word.key.split(".")[1]
            if name not in chosen:
                yield f"{word.key}: unknown key{loggers.not_chosen(name, chosen)}"
                continue
        yield from check.faults(word.key, value, tree)


def _single(word: Word, multirun: bool, several: Callable[[Word], str], faults: list[str]) -> list[str]:
    """Returns a list with the text of the word.

    If the word is not allowed in this kind of run, adds a fault and returns [], or for several values without -m the
    word with its first value, so that the other words can still be checked.
    """
    if word.is_group and word.is_deletion:
        faults.append(f"{word.text}: a group cannot be deleted; choose another name for it")
        return []
    if word.is_hydra:
        faults.append(f"{word.text}: {foreign_words.of_hydra(word.text)}")
        return []
    if word.key == "space":
        faults.append(f"{word.text}: a space is searched by `rlrun sweep`; `rlrun show {word.text}` prints it")
        return []
    if word.section == "sweep":
        faults.append(f"{word.text}: a part of `rlrun sweep`, which takes it as {word.text.removeprefix('sweep.')}")
        return []
    if word.section == "submit":
        faults.append(f"{word.text}: where a run is started is a setting of `rlrun train` and `rlrun sweep` alone")
        return []
    if word.is_grid and not multirun:
        faults.append(f"{word.text}: several values; {several(word)}")
        return [f"{word.key}={dotted.show(value)}" for value in word.values[:1]]
    return [word.text]


def _choice_fault(word: Word, names: Sequence[str], plugins: Sequence[str]) -> str | None:
    """Returns the fault of a choice that does not exist in its group, or None if it exists."""
    group = word.key
    value = word.values[0]
    if group == loggers.SECTION and isinstance(value, list):
        for name in value:
            fault = _name_fault(group, str(name), names, plugins)
            if fault is not None:
                return fault
        return None
    return _name_fault(group, str(value), names, plugins)


def _name_fault(group: str, name: str, names: Sequence[str], plugins: Sequence[str]) -> str | None:
    """Returns the fault of a name that does not exist in a group, or None if it exists."""
    if name in names or (group == "preset" and name == NO_PRESET):
        return None
    if group == "preset" and name.endswith(".yml"):
        return f"preset={name}: the name of the file must end in .yaml"
    if group == "preset" and name.endswith(".yaml"):
        if os.path.normpath(name).removesuffix(".yaml") in names:
            return f"preset={name}: has the name of a preset of rlrun or a plug-in, which comes first; rename the file"
        if sources.is_preset_path(name):
            return None  # composing reads the file, as untrusted data
        return f"preset={name}: no such file"
    if group == "env" and not name.startswith("_"):
        return environments.fault(name, names, plugins)
    known = list(names)
    if group == "preset":
        known.append(NO_PRESET)
    suggestion = foreign_words.part(group, name)
    if suggestion is None:
        suggestion = closest(name, names)
    return f"{group}={name}: unknown name{did_you_mean(suggestion)} (there are: {_some(known)})"


def _some(names: Sequence[str]) -> str:
    """Returns at most 12 names with commas, then `...` if there are more."""
    text = ", ".join(names[:12])
    if len(names) > 12:
        text += ", ..."
    return text
