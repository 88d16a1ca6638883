"""Turns the words of `rlrun sweep` into a plan, which is checked before anything is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlrun.cluster import Cluster
from rlrun.config import sources
from rlrun.config.compose import Word, literal
from rlrun.config.jobs import jobs
from rlrun.config.resumable import setting
from rlrun.config.stored import SWEEP
from rlrun.errors import ConfigError, closest, did_you_mean
from rlrun.sweep import ends, folder, journal, rungs, space, untrusted
from rlrun.sweep.branching import SCHEDULE, BranchingRuns, schedule
from rlrun.sweep.display import SweepDisplay
from rlrun.sweep.driver import Driver, Strategy
from rlrun.sweep.events import apply_all
from rlrun.sweep.population import Population
from rlrun.sweep.pruning import pruning
from rlrun.sweep.ranges import plain
from rlrun.sweep.runs import Runs, RunTemplate
from rlrun.sweep.scoring import Scoring
from rlrun.sweep.search import Search, ask_again, search
from rlrun.sweep.settings import FREE, PbtConfig, SweepConfig, check_size, defaults, meanings, settings
from rlrun.sweep.space import Dimension, Space
from rlrun.sweep.study import Study
from rlrun.sweep.trials import FRESH, Trial, Trials

OURS = ("run_dir", "resume", "trainer.stop_at")  # settings of a run that the driver sets


@dataclass(frozen=True)
class Plan:
    """A sweep whose settings are checked, and that may be started or continued."""

    cfg: SweepConfig
    space: Space
    values: dict[str, object]  # the config composed in the first environment; searched keys have their default values
    templates: Mapping[str, RunTemplate]  # by environment
    scoring: Scoring
    search: Search
    path: Path
    confirmed: untrusted.Confirmed | None = None  # None for a sweep that the user has typed

    @property
    def last_rung(self) -> int:
        return max(len(template.rung_steps) for template in self.templates.values()) - 1

    def check_ends(self) -> None:
        """Raises ConfigError with a line for each value that the runs would refuse, the ends of ranges included."""
        runs = [[*template.words, *self.schedule_words()] for template in self.templates.values()]
        ends.check_ends(self.space, runs, self.confirmed)

    def begin(self) -> None:
        """Writes sweep.yaml, or checks that the folder holds this sweep. The caller holds the lock of the folder."""
        folder.begin(self.path, folder.Description.of(self.cfg, self.space, self.templates))

    def trials(self, before: Callable[[journal.Event, Trials], None] | None = None) -> Trials:
        """Returns the trials after all events of the journal. before: called before an event is applied."""
        trials = Trials([*self.templates], self.cfg.seeds, self.last_rung)
        file = self.path / journal.NAME
        return apply_all(trials, journal.read(file), self.cfg, self.space, before, file)

    def driver(self, cluster: Cluster, display: SweepDisplay) -> Driver:
        """Returns a driver that continues after the events of the journal, and shows its events on the display."""
        trials = self.trials(partial(ask_again, self.search))
        return Driver(
            self.strategy(trials),
            trials,
            journal.Journal(self.path / journal.NAME),
            self.runs(),
            cluster,
            self.cfg,
            display.say,
            display.progress,
        )

    def strategy(self, trials: Trials) -> Strategy:
        """Returns the strategy that makes the decisions of this sweep."""
        if isinstance(self.cfg.kind, PbtConfig):
            return Population(self.cfg, self.space, self.values, self.search, trials)
        return Study(self.cfg, self.space, self.values, self.search, pruning(self.cfg.prune), trials)

    def schedule_words(self) -> list[str]:
        """Returns the word that gives each searched key a schedule, as all runs of a population have; else no word."""
        if not isinstance(self.cfg.kind, PbtConfig):
            return []
        start = Trial(0, [], dict.fromkeys(self.space.keys), [], 1)
        return [f"{SCHEDULE}={literal(schedule(start))}"]

    def runs(self) -> Runs:
        """Returns the runs of this sweep."""
        runs_class = Runs
        if isinstance(self.cfg.kind, PbtConfig):
            runs_class = BranchingRuns
        return runs_class(self.path / folder.TRIALS, self.templates, self.cfg.metric, self.scoring, self.confirmed)


def plan(words: Sequence[str]) -> Plan:
    """Returns the plan of the words after `rlrun sweep`. Raises ConfigError with a line for each fault."""
    own, others = _split(words)
    cfg = settings(own)
    dimensions, shared = space.from_words(others)
    if any(dimension.key == "env" for dimension in dimensions):
        raise ConfigError("env: is not searched; each trial trains in all environments of env=A,B")
    config_dirs, shared = sources.config_dirs(shared)
    envs, shared = _environments(sources.by_name(shared))
    runs = {env: [*shared, f"env={env}", *config_dirs] for env in envs}
    checked = _checked(cfg, runs, partial(_space, cfg, dimensions))
    if not (checked.path / SWEEP).exists():
        checked.check_ends()
    return checked


def stored(path: Path, words: Sequence[str]) -> Plan:
    """Returns the plan of a sweep on disk. words: new values of settings in `FREE`, and
    words that allow what reaches outside of the sweep, such as code and files.

    Raises ConfigError for settings that must not change. The folder may be untrusted: also raises ConfigError if the
    runs use code, files or addresses outside of it that the user has not typed again.
    """
    described = folder.read(path)
    own, others = _split(words)
    for key in own:
        if key not in FREE:
            raise ConfigError(f"{key}: cannot change in a sweep that has begun (only {', '.join(FREE)} can)")
    runs = {env: [str(word) for word in one["words"]] for env, one in described.runs.items()}
    confirmed = [reach for shared in runs.values() for reach in untrusted.check_words(shared, others)]
    cfg = settings({**described.sweep, **own})
    checked = _checked(cfg, runs, lambda values, shared: space.from_yaml(described.space, str(path)), path)
    configs = [jobs(template.words)[0].values for template in checked.templates.values()]
    untrusted.check_runs(configs, checked.space, others, confirmed)
    return replace(checked, confirmed=untrusted.Confirmed(others))


def _checked(
    cfg: SweepConfig,
    runs: Mapping[str, Sequence[str]],
    space_of: Callable[[dict[str, object], Sequence[str]], Space],
    path: Path | None = None,
) -> Plan:
    """Returns the plan of a sweep. Raises ConfigError with a line for each fault.

    runs: words by environment. space_of: returns the space for a composed config and its words. path: the folder of the
    sweep; by default it follows from the name.
    """
    if isinstance(cfg.kind, PbtConfig):
        _check_population(cfg, runs)
    check_size(cfg, len(runs))
    templates = {}
    values: list[dict[str, object]] = []
    for env, words in runs.items():
        for word in words:
            key = word.lstrip("+").partition("=")[0]
            if key in OURS:
                raise ConfigError(f"{word}: a sweep chooses {key} for each run")
        (job,) = jobs(words, several=_range_advice)
        values.append(job.values)
        templates[env] = RunTemplate(words, rungs.steps(cfg, job.values))
    if len({len(template.rung_steps) for template in templates.values()}) > 1:
        raise ConfigError("rungs: the environments have different numbers of evaluations; set trainer.eval_every")
    searched = space_of(values[0], next(iter(runs.values())))
    faults = [fault for tree in values for fault in space.faults(searched, tree)]
    if faults:
        raise ConfigError(*faults)
    scoring = Scoring(cfg, [*runs])
    points = search(cfg.search, searched, cfg.seed, cfg.trials)
    if path is None:
        name = cfg.name or "+".join(str(tree["name"]) for tree in values).replace("/", "_")
        if name in (".", "..") or "/" in name or not name.isprintable() or len(name.encode()) > folder.LONGEST_NAME:
            raise ConfigError(f"name={name}: must be the name of a folder, of at most {folder.LONGEST_NAME} bytes")
        path = folder.SWEEPS / name
    return Plan(cfg, searched, values[0], templates, scoring, points, path)


def _check_population(cfg: SweepConfig, runs: Mapping[str, Sequence[str]]) -> None:
    """Raises ConfigError for settings that population-based training does not support."""
    if len(runs) > 1:
        raise ConfigError(f"kind=pbt: trains in one environment, not in {', '.join(runs)}")
    for word in next(iter(runs.values())):
        removes = word.startswith(f"{SCHEDULE}.") and word.endswith("={}")  # it removes the schedule that a preset sets
        if word.startswith(SCHEDULE) and not removes:
            raise ConfigError(f"{word}: kind=pbt writes {SCHEDULE} itself")
    if not 2 <= cfg.trials <= FRESH:
        raise ConfigError(f"trials={cfg.trials}: kind=pbt needs a population of 2 to {FRESH}")


def _range_advice(word: Word) -> str:
    """Returns the end of the error message about a word with several values."""
    if word.section in ("algo", "network", "env") and not word.is_group:
        return f"to search them, type '{word.key}=choice({word.raw})'"
    return "a sweep accepts only one"


def _split(words: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    """Returns the settings of the sweep, and the other words."""
    known = defaults()
    own_keys = {key.rpartition(".")[2]: key for key in meanings()}  # by their last part, for suggestions
    of_runs = {*sources.content(sources.CONF / "train.yaml"), *sources.groups([sources.CONF])}
    own: dict[str, object] = {}
    others = []
    faults = []
    for word in words:
        key, equals, _ = word.partition("=")
        if key.partition(".")[0] in known:
            own[key] = setting(word)[1]
            if isinstance(own[key], list | dict):
                own[key] = plain(own[key])
            continue
        near = None
        if equals and key.isidentifier() and key not in of_runs:
            near = closest(key, own_keys)
        if near is None:
            others.append(word)
        else:
            faults.append(f"{key}: unknown key{did_you_mean(own_keys[near])}")
    if faults:
        raise ConfigError(*faults)
    return own, others


def _environments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the environments of words such as `env=A,B`, and the other words."""
    envs: list[str] = []
    others = []
    for word in words:
        key, _, value = word.partition("=")
        if key == "env":
            envs += value.split(",")
            if len(envs) > 1 and "" in envs:
                raise ConfigError(f"{word}: has an empty name")
        else:
            others.append(word)
    if not envs:
        jobs(others)  # raises the error for a missing environment
    return [*dict.fromkeys(envs)], others


def _space(cfg: SweepConfig, typed: list[Dimension], values: dict[str, Any], words: Sequence[str]) -> Space:
    """Returns the searched space.

    With `space=<name>`, it consists of that space and the typed ranges. Otherwise, it consists of the typed ranges, or
    without them it is the space of the algorithm. Keys with a typed value are not searched.
    """
    folders = sources.folders_of(words)
    fixed = {word.partition("=")[0] for word in words}
    for dimension in typed:
        if dimension.key in fixed:
            raise ConfigError(f"{dimension.key}: has a value and a range; type one of them")
    if cfg.space is None and typed:
        return Space(_changeable(cfg, typed, words))
    name = cfg.space or values["algo"]["name"]
    known = sources.options(space.GROUP, folders)
    if cfg.space is None and name not in known:
        raise ConfigError(
            f"algo={name} has no space; type ranges, such as 'algo.gamma=logit(0.9,0.999)', "
            f"or space=<name> ({', '.join(known)})"
        )
    found = space.named(name, folders)
    replaced = fixed | {dimension.key for dimension in typed}
    others = [dimension for dimension in found.dimensions if dimension.key not in replaced]
    if cfg.space is None:
        others = _changeable(cfg, others, words, is_chosen=False)
    return Space([*_changeable(cfg, typed, words), *others])


def _changeable(
    cfg: SweepConfig, dimensions: list[Dimension], words: Sequence[str], is_chosen: bool = True
) -> list[Dimension]:
    """With kind=pbt, returns the dimensions whose keys can change during a run; otherwise, returns all.

    words: those of a run. is_chosen: the user has chosen the dimensions, so one that cannot change raises ConfigError.
    """
    if not isinstance(cfg.kind, PbtConfig) or not dimensions:
        return dimensions
    known = ends.schedulable(words)
    for dimension in dimensions:
        if is_chosen and dimension.key not in known:
            shown = ", ".join(known) or "none of this algorithm"
            raise ConfigError(f"{dimension.key}: cannot change during a run, as kind=pbt needs (these can: {shown})")
    return [dimension for dimension in dimensions if dimension.key in known]
