"""Turns the words after `rlrun train` into the values of every job, or into a list of all faults."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rlrun.config import check, environments, sources
from rlrun.config.compose import NO_PRESET, Composer, Composition, Word, choice
from rlrun.errors import ConfigError

T = TypeVar("T")
U = TypeVar("U")

REQUIRED = ("algo", "env")  # groups without a default


@dataclass(frozen=True)
class Job:
    """One run to train."""

    words: list[str]  # as typed, one value each
    values: dict[str, Any]  # resolved, plain


def jobs(words: Sequence[str], multirun: bool = False, config_dirs: Iterable[str] = ()) -> list[Job]:
    """Compose and check everything that needs no torch. Raises ConfigError with one line per fault, all at once."""
    words = sources.by_name(words)
    composer = Composer(sources.folders(sources.named_plugins(words), config_dirs))
    faults: list[str] = []
    plain: list[str] = []
    for text in words:
        try:
            plain += _single(composer, composer.read(text), multirun, faults)
        except ConfigError as error:
            faults += error.faults
    try:
        found = for_all(composer.expand(plain), lambda job: _job(composer, [*map(composer.read, job)]), list)
    except ConfigError as error:
        faults += error.faults
    if faults:
        raise ConfigError(*faults)
    if not found:
        raise ConfigError(f"{' '.join(words)}: makes no job at all")
    return found


def for_all(jobs: Sequence[T], work: Callable[[T], U], words: Callable[[T], list[str]]) -> list[U]:
    """Do `work` for every job, and return the results.

    If it raises ConfigError for some jobs, the others are done all the same. Then one ConfigError with every fault is
    raised; a fault that only some jobs have ends with the words of the first of them that are not shared by all jobs.
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
        own_words = [word for word in words(faulty[0]) if word not in shared]
        if len(faulty) < len(jobs):
            fault += f" ({' '.join(own_words)})"
        lines.append(fault)
    raise ConfigError(*lines)


def for_hydra(words: Iterable[str], config_dirs: Iterable[str] = ()) -> list[str]:
    """The same words in the form that Hydra takes without asking for a plus: group choices as they are, `++a.b=c`."""
    words = sources.by_name(list(words))
    composer = Composer(sources.folders(sources.named_plugins(words), config_dirs))
    return [composer.read(word).for_hydra for word in words]


def choose(
    composer: Composer, words: Iterable[Word], required: Sequence[str] = REQUIRED
) -> tuple[list[str], set[str], list[str]]:
    """Group choices that compose, the groups that stay open because nothing usable was chosen, and the faults.

    A wrong name is replaced by the nearest good one, so that the rest can still be checked against it.
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
            faults.append(f"{word.text}: {group} is chosen twice; {typed[group].text} stands before it")
        typed[group] = word
    for group in dict.fromkeys((*required, *typed)):
        names = list(sources.options(group, composer.folders))
        if group not in typed:
            faults.append(f"{group}: missing; choose one with {group}=... ({_some(names)})")
        elif fault := _choice_fault(typed[group], names, plugins):
            faults.append(fault)
        else:
            choices.append(typed[group].for_hydra)
            continue
        guess = None
        if group in typed:
            guess = check.closest(str(typed[group].values[0]), names)
        if guess is None:
            unknown.add(group)
        else:
            choices.append(choice(group, guess))
    return choices, unknown, faults


def composed(
    composer: Composer, words: Sequence[Word], required: Sequence[str] = REQUIRED
) -> tuple[Composition, list[str], set[str], list[str]]:
    """What `choose` finds, composed. Parts are chosen last, because the other choices decide which parts there are."""
    choices, unknown, faults = choose(composer, [word for word in words if not word.is_part], required)
    composition = composer.compose(choices)
    present = []
    for word in words:
        if not word.is_part or word.section in unknown:
            continue
        if check.lookup(word.key, composition.tree) is check.ABSENT:
            faults.append(_part_fault(word, composition))
        else:
            present.append(word)
    parts, _, more = choose(composer, present, required=())
    return composer.compose(choices + parts), choices + parts, unknown, faults + more


def _part_fault(word: Word, composition: Composition) -> str:
    """Why a part cannot be chosen that the algorithm, or the network, does not have."""
    parts = []
    for group in sources.groups(composition.folders):
        if group.startswith(f"{word.section}.") and check.lookup(group, composition.tree) is not check.ABSENT:
            parts.append(group)
    line = f"{word.text}: {word.section}={composition.choices[word.section]} has no part {word.key}"
    if parts:
        line += f"; its parts are {', '.join(parts)}"
    return line


def _job(composer: Composer, words: Sequence[Word]) -> Job:
    composition, _, unknown, faults = composed(composer, words)
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
    lacking: list[str] = []
    if not unknown:
        lacking = list(check.missing(values))
    if any(line.startswith("algo.loop.") for line in lacking):
        lacking = list(_loop_faults(values)) or lacking
    faults += lacking or _type_faults(values)
    if faults:
        raise ConfigError(*faults)
    return Job([word.text.lstrip("+") for word in words], values)


def _loop_faults(values: dict[str, Any]) -> Sequence[str]:
    """A fault if the algorithm does not support its loop, which explains why keys of that loop are missing."""
    from rlrun.run.assemble import check_loop  # takes torch's second, which only this fault costs

    try:
        check_loop(values["algo"])
    except ConfigError as error:
        return error.faults
    return ()


def _type_faults(values: dict[str, Any]) -> Sequence[str]:
    """Ranges and choices of everything but the algorithm, whose class imports torch."""
    from rlrun.config.schema import run_config  # pydantic: a quarter of the start-up of `rlrun show`, which needs none

    named = {"algo": values.get("algo", {}), "name": values["name"] or ""}  # not there while a choice is missing
    try:
        run_config(values | named)
    except ConfigError as error:
        return error.faults
    return ()


def word_faults(word: Word, tree: dict[str, Any]) -> Iterator[str]:
    """The faults of one setting, of every element if it sweeps."""
    if word.is_deletion:
        if not check.is_open(word.key, tree) or check.lookup(word.key, tree) is check.ABSENT:
            yield f"{word.text}: only what stands in {', '.join(check.OPEN)} can be taken away"
        return
    for value in word.values:
        yield from check.refused(value, word.key)
        yield from check.faults(word.key, value, tree)


def _single(composer: Composer, word: Word, multirun: bool, faults: list[str]) -> list[str]:
    """The word's text in a list. For a word that does not belong in this kind of run a fault is added, and the list
    holds what the other words are checked with, perhaps nothing."""
    if word.is_group and word.is_deletion:
        faults.append(f"{word.text}: a group cannot be taken away; choose another name for it")
        return []
    if word.is_hydra:
        if not multirun:
            faults.append(f"{word.text}: Hydra's settings are for sweeps; add -m")
        elif fault := composer.hydra_fault(word):
            faults.append(fault)
        return []
    if word.is_sweep and not multirun:
        faults.append(f"{word.text}: several values; add -m to run a job for each")
        return [f"{word.key}={check.show(value)}" for value in word.values[:1]]
    return [word.text]


def _choice_fault(word: Word, names: Sequence[str], plugins: Sequence[str]) -> str | None:
    """Why a group has no such choice."""
    group, name = word.key, str(word.values[0])
    if name in names or (group == "preset" and name == NO_PRESET):
        return None
    if group == "env" and not name.startswith("_"):
        return environments.fault(name, names, plugins)
    known = list(names)
    if group == "preset":
        known.append(NO_PRESET)
    return f"{group}={name}: unknown name{check.nearest(name, names)} (there are: {_some(known)})"


def _some(names: Sequence[str]) -> str:
    """The first names, with commas."""
    text = ", ".join(names[:12])
    if len(names) > 12:
        text += ", ..."
    return text
