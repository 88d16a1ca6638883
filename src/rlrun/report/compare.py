"""Compares methods on environments: selects the runs that count, the steps of comparison, and computes the scores.

A method is an algorithm, or a variant of it by the config keys `by`. An environment is an id with the arguments in
which runs differ. A cell holds the runs of one method on one environment.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, product
from pathlib import Path

import numpy as np

from rlrun import dotted
from rlrun.report.runs import DONE, StoredRun
from rlrun.report.statistics import (
    Array,
    improvement,
    improvement_interval,
    interval,
    iqm,
    profile,
    profile_interval,
)

POINTS = 120  # maximum number of points of a curve
FEWEST = 12  # the maximum that `POINTS` is lowered to in the largest reports
SCORE = "eval/return_mean"
BASELINE = " (baseline)"  # suffix of the names of methods in the baseline
THRESHOLDS = 101  # number of normalised scores at which performance profiles are computed
LAST_EXACT_STEP = 2**53  # later steps are not exact as floats
OWN = ("algo.name", "name", "run_dir", "plugins", "resume")  # keys that differ between methods anyway
Profile = tuple[Array, Array, Array]
Pair = tuple[str, str, float, tuple[float, float]]
Difference = tuple[str, list[str]]  # a config key and its values


@dataclass(frozen=True, eq=False)
class Series:
    """The evaluations of one run."""

    run: StoredRun
    steps: Array
    values: Array

    def at(self, step: float) -> float:
        """Returns the score of the last evaluation up to `step`, or NaN before the first evaluation."""
        index = int(np.searchsorted(self.steps, step, "right")) - 1
        if index < 0:
            return float("nan")
        return float(self.values[index])

    @property
    def ended(self) -> bool:
        """Whether the run has reached its total number of steps."""
        return self.run.state == DONE or self.run.step >= self.run.total_steps


@dataclass(frozen=True)
class Cell:
    """The runs of one method on one environment."""

    method: str
    env: str
    series: list[Series]  # all runs that have evaluations
    counted: list[Series]  # runs from which all statistics are computed
    uncounted: dict[Path, str]  # folder of each other run -> the reason why it does not count
    points: int = POINTS  # maximum number of points of a curve

    @cached_property
    def horizon(self) -> float:
        """The last step up to which all counted runs have evaluations."""
        return min(float(one.steps[-1]) for one in self.counted)

    @cached_property
    def grid(self) -> Array:
        """Steps of the mean curves.

        They are the steps of the evaluations if these are the same in all counted runs and not more than `points`, else
        evenly spaced steps.
        """
        first, *others = [one.steps[one.steps <= self.horizon] for one in self.counted]
        if len(first) <= self.points and all(np.array_equal(first, other) for other in others):
            return first
        begin = max(float(one.steps[0]) for one in self.counted)
        return np.unique(np.linspace(begin, self.horizon, self.points))

    @cached_property
    def curves(self) -> Array:
        """Scores of the counted runs on the grid, interpolated linearly between evaluations, [runs, points]."""
        return np.array([np.interp(self.grid, one.steps, one.values) for one in self.counted])

    @cached_property
    def band(self) -> tuple[Array, Array]:
        """Lower and upper end of the 95 % interval of the interquartile mean (IQM) of the curves, [points] each."""
        return interval([self.curves])

    @cached_property
    def centre(self) -> Array:
        """The IQM of the curves, [points]."""
        return iqm(self.curves, 0)

    @cached_property
    def final(self) -> Array:
        """The last evaluation of each run up to the horizon, [runs]."""
        return np.array([one.at(self.horizon) for one in self.counted])

    @cached_property
    def final_interval(self) -> tuple[float, float]:
        """The 95 % interval of the IQM of the final scores; NaN for one or two runs."""
        low, high = interval([self.final])
        return float(low), float(high)

    @cached_property
    def best(self) -> Array:
        """The best evaluation of each run up to the horizon, [runs]."""
        return np.array([one.values[one.steps <= self.horizon].max() for one in self.counted])

    @cached_property
    def differences(self) -> list[Difference]:
        """Config keys that differ among the counted runs, and all their values."""
        return differences([one.run for one in self.counted])


class Comparison:
    """All cells of a report. Methods and environments have a fixed order."""

    def __init__(self, cells: Sequence[Cell], without_score: dict[Path, str]):
        """without_score: runs that have no evaluation, by folder, each with the reason why it does not count."""
        self.cells = {(cell.method, cell.env): cell for cell in cells}
        self.methods = [*dict.fromkeys(cell.method for cell in cells)]
        self.envs = sorted({cell.env for cell in cells})
        self.uncounted = dict(without_score)
        self.names: dict[Path, str] = {}  # name of the method, by the folder of a run
        for cell in cells:
            self.uncounted.update(cell.uncounted)
            for one in cell.series:
                self.names[one.run.path] = cell.method

    def __iter__(self) -> Iterator[Cell]:
        for env in self.envs:
            yield from self.on(env)

    def of(self, method: str) -> list[Cell]:
        """Returns the cells of one method, in the order of environments."""
        return [self.cells[method, env] for env in self.envs if (method, env) in self.cells]

    def on(self, env: str) -> list[Cell]:
        """Returns the cells of one environment, in the order of methods."""
        return [self.cells[method, env] for method in self.methods if (method, env) in self.cells]

    @property
    def gaps(self) -> list[str]:
        """`<method> on <environment>` for each pair without runs."""
        pairs = product(self.methods, self.envs)
        return [f"{name} on {env}" for name, env in pairs if (name, env) not in self.cells]

    def unequal(self, env: str) -> dict[str, dict[str, list[str]]]:
        """Returns {key: {method: values}} for the config keys in which the methods on an environment differ.

        Keys that only one method has are left out, and so are the names of algorithm, plug-ins and folders. Seeds are
        compared as sets.
        """
        found: dict[str, dict[str, list[str]]] = {}
        for cell in self.on(env):
            for key, values in all_values([one.run for one in cell.counted]).items():
                found.setdefault(key, {})[cell.method] = sorted(values)
        different = {}
        for key, by_method in found.items():
            is_own = key in OWN or key.startswith("logger.")
            if not is_own and len(set(map(tuple, by_method.values()))) > 1:
                different[key] = by_method
        return different

    @cached_property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The lowest and highest evaluation of all counted runs, by environment: 0 and 1 of normalised scores."""
        bounds = {}
        for env in self.envs:
            pool: list[Array] = []
            for cell in self.on(env):
                pool += [one.values for one in cell.counted]
            values = np.hstack(pool)
            bounds[env] = float(np.min(values)), float(np.max(values))
        return bounds

    def normalised(self, cell: Cell, scores: Array) -> Array:
        """Returns scores scaled to [0, 1] by the bounds of their environment; 1/2 if both bounds are equal."""
        low, high = self.bounds[cell.env]
        if high <= low:
            return np.full_like(scores, 0.5)
        return (scores - low) / (high - low)

    def strata(self, method: str, what: str = "final") -> list[Array]:
        """Returns the normalised scores of a method, one stratum for each environment. what: "final" or "best"."""
        return [self.normalised(cell, getattr(cell, what)) for cell in self.of(method)]

    def shared(self, x: str, y: str) -> tuple[list[Array], list[Array]]:
        """Returns the final scores of two methods, on the environments that both have."""
        xs = []
        ys = []
        for env in self.envs:
            if (x, env) in self.cells and (y, env) in self.cells:
                xs.append(self.cells[x, env].final)
                ys.append(self.cells[y, env].final)
        return xs, ys

    @cached_property
    def thresholds(self) -> Array:
        """The normalised scores at which performance profiles are computed: from below the lowest final score to above
        the highest."""
        scores = np.hstack([values for name in self.methods for values in self.strata(name)])
        low, high = float(np.min(scores)), float(np.max(scores))
        space = max(0.05 * (high - low), 0.005)
        return np.linspace(max(0.0, low - space), min(1.0, high + space), THRESHOLDS)

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """The performance profile of each method at `thresholds`, with both ends of its interval."""
        found = {}
        for name in self.methods:
            strata = self.strata(name)
            found[name] = (profile(strata, self.thresholds), *profile_interval(strata, self.thresholds))
        return found

    def of_metric(self, key: str) -> "Comparison":
        """Returns the cells of another metric of the log rows, over the runs that count here; none without values."""
        cells = []
        for cell in self:
            found = [series for one in cell.counted if (series := series_of(one.run, key)) is not None]
            if found:
                cells.append(Cell(cell.method, cell.env, found, _overlapping(found), {}, cell.points))
        other = Comparison(cells, {})
        other.methods = self.methods
        return other

    @cached_property
    def pairs(self) -> list[Pair]:
        """(X, Y, P(X > Y), interval) for each pair of methods, with P(X > Y) >= 1/2, sorted by descending P."""
        found = []
        for x, y in rivals(self):
            xs, ys = self.shared(x, y)
            if not xs:
                continue
            if improvement(xs, ys) < 0.5:
                found.append((y, x, improvement(ys, xs), improvement_interval(ys, xs)))
            else:
                found.append((x, y, improvement(xs, ys), improvement_interval(xs, ys)))
        return sorted(found, key=lambda pair: -pair[2])


def compare(
    runs: Sequence[StoredRun],
    by: Sequence[str] = (),
    score: str = SCORE,
    suffix: str = "",
    envs: Mapping[Path, str] | None = None,
) -> Comparison:
    """Groups runs by algorithm, the config keys `by`, and environment. suffix: appended to the names of methods.

    envs: the name of the environment of each run, by folder; None: `environments` of these runs.
    """
    envs = envs or environments(runs, by)
    groups: dict[tuple[str, str], list[StoredRun]] = {}
    for run in sorted(runs, key=lambda run: (run.algo, str(run.path))):
        groups.setdefault((method(run, by) + suffix, envs[run.path]), []).append(run)
    without_score: dict[Path, str] = {}
    cells = []
    total = len(groups)
    for (name, env), members in groups.items():
        series = []
        for run in members:
            found = series_of(run, score)
            if found is not None:
                series.append(found)
            elif run.rows:
                without_score[run.path] = f"no {score} yet"
            else:
                without_score[run.path] = "no rows yet"
        if series:
            counted, uncounted = _count(series)
            points = max(FEWEST, min(POINTS, 3000 // total, 12_000 // len(counted)))
            cells.append(Cell(name, env, series, counted, uncounted, points))
    return Comparison(cells, without_score)


def series_of(run: StoredRun, key: str) -> Series | None:
    """Returns the values of a metric in the rows of a run, or None if no row has it."""
    pairs = [(row["step"], row[key]) for row in run.rows if key in row and row["step"] <= LAST_EXACT_STEP]
    if not pairs:
        return None
    return Series(run, *np.array(pairs, float).T)


def environments(runs: Iterable[StoredRun], by: Sequence[str] = ()) -> dict[Path, str]:
    """Returns the name of the environment of each run, by folder: its id, and the constructor arguments in which runs
    with this id differ, except those of the keys `by`.

    The name of a class in a file is that of the class, unless two files have such a class.
    """
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(run.env, []).append(run)
    shorts = [class_of(id) for id in groups]
    names = {}
    for id, members in groups.items():
        name = class_of(id)
        if shorts.count(name) > 1:
            name = id
        separate = [key for key, values in all_values(members).items() if len(values) > 1 and _is_argument(key, by)]
        for run in members:
            names[run.path] = " ".join([name, *(_shown(key, run) for key in separate)])
    return names


def class_of(id: str) -> str:
    """Returns the name of an environment: of the class, if the id names a class in a file, or else the id."""
    file, _, name = id.rpartition(":")
    if file.endswith(".py"):
        return name
    return id


def _is_argument(key: str, by: Sequence[str]) -> bool:
    """Returns whether a key is an argument of the environment that is not in `by`, not even as a part of a section."""
    return key.startswith("env.kwargs.") and not any(f"{key}.".startswith(f"{one}.") for one in by)


def _shown(key: str, run: StoredRun) -> str:
    """Returns the last part of a key with its value, such as `size=3`, or `size=-` for a run without it."""
    value = dotted.lookup(key, run.config)
    shown = "-"
    if value is not dotted.ABSENT:
        shown = dotted.show(value)
    return f"{key.rpartition('.')[2]}={shown}"


def rivals(comparison: Comparison) -> list[tuple[str, str]]:
    """Returns the pairs of methods to compare.

    Methods are paired with the baseline method of the same name. If there is none, all pairs of a method and a baseline
    method are returned, or all pairs if there is no baseline.
    """
    names = comparison.methods
    namesakes = [(name, name + BASELINE) for name in names if name + BASELINE in names]
    if namesakes:
        return namesakes
    every = list(combinations(names, 2))
    with_baseline = [(x, y) for x, y in every if x.endswith(BASELINE) != y.endswith(BASELINE)]
    if with_baseline:
        return with_baseline
    return every


def joined(one: Comparison, other: Comparison) -> Comparison:
    """Merges two comparisons. Methods are sorted by name, so a method is next to its baseline."""
    cells = [*one.cells.values(), *other.cells.values()]
    return Comparison(sorted(cells, key=lambda cell: cell.method), {**one.uncounted, **other.uncounted})


def method(run: StoredRun, by: Sequence[str] = ()) -> str:
    """Returns the name of a run's method: `sac`, or `sac, gamma=0.9` if `by` holds `algo.gamma`."""
    return ", ".join([run.algo, *(_shown(key, run) for key in by)])


def _count(series: list[Series]) -> tuple[list[Series], dict[Path, str]]:
    """Returns the runs that count, and the folder of each other run with the reason.

    Of several runs with the same config and seed, only the longest counts. Unfinished runs count only if no run has
    finished. The runs that count must share a step (`_overlapping`).
    """
    longest: dict[str, Series] = {}
    uncounted: dict[Path, str] = {}
    for one in sorted(series, key=lambda one: one.run.step):
        key = _identity(one.run)
        if key in longest:
            uncounted[longest[key].run.path] = f"same config and seed as {one.run.path}"
        longest[key] = one
    distinct = [one for one in series if one.run.path not in uncounted]
    comparable = [one for one in distinct if one.ended]
    if not comparable:
        comparable = distinct
    counted = _overlapping(comparable)
    for one in distinct:
        run = one.run
        if one not in comparable:
            uncounted[run.path] = f"{run.state} at {run.step:,} of {run.total_steps:,} steps"
        elif one not in counted:
            uncounted[run.path] = f"evaluated only {_stretch(one)}, no step in common with the runs that count"
    return counted, uncounted


def _overlapping(series: list[Series]) -> list[Series]:
    """Returns the largest set of runs that share a step, which is between first and last evaluation of each run.

    Of sets of equal size, returns the one whose shortest run is longest. Runs that share no step cannot be averaged:
    one has ended before the first evaluation of another.
    """
    first = np.array([one.steps[0] for one in series])
    last = np.array([one.steps[-1] for one in series])
    together = (first <= last[:, None]) & (last[:, None] <= last)  # [i, j]: run j covers the end of run i
    sizes = together.sum(1)
    chosen = max(range(len(series)), key=lambda index: (sizes[index], last[index]))
    return [one for one, inside in zip(series, together[chosen], strict=True) if inside]


def _stretch(one: Series) -> str:
    first, last = one.steps[[0, -1]]
    if first == last:
        return f"at step {first:,.0f}"
    return f"from step {first:,.0f} to {last:,.0f}"


def _identity(run: StoredRun) -> str:
    """Returns the config of a run as text, without keys that do not change results."""
    own = {key: value for key, value in run.config.items() if key not in ("run_dir", "name", "logger", "resume")}
    return dotted.show(own)


def differences(runs: Sequence[StoredRun]) -> list[Difference]:
    """Returns the config keys that differ between runs, each with all its values, except seeds, folders and logging."""
    found = []
    for key, values in all_values(runs).items():
        if len(values) > 1 and key not in ("seed", "run_dir", "name") and not key.startswith("logger."):
            found.append((key, values))
    return found


def all_values(runs: Sequence[StoredRun]) -> dict[str, list[str]]:
    """Returns all values of each config key among runs, as text; "-" for a run that lacks the key."""
    configs = []
    for run in runs:
        configs.append({key: dotted.show(value) for key, value in dotted.leaves(run.config)})
    values = {}
    for key in dict.fromkeys(chain.from_iterable(configs)):
        values[key] = list(dict.fromkeys(config.get(key, "-") for config in configs))
    return values
