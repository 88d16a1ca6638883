"""Compares methods on environments: which runs count, at which steps they are compared, and their scores."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, product
from pathlib import Path

import numpy as np

from rlrun.config import check
from rlrun.report.runs import DONE, Run
from rlrun.report.statistics import (
    Array,
    improvement,
    improvement_interval,
    interval,
    iqm,
    profile,
    profile_interval,
)

POINTS, FEWEST = 120, 12  # of a curve, at most; in large reports fewer, but not less than the second
SCORE = "eval/return_mean"
BASELINE = " (baseline)"  # after the name of a method from the other set
THRESHOLDS = np.linspace(0, 1, 101)  # of normalised scores, in profiles
LAST_STEP = 2**53  # floats cannot tell later steps apart
Profile = tuple[Array, Array, Array]
Pair = tuple[str, str, float, tuple[float, float]]
Difference = tuple[str, list[str]]  # a config key and its values


@dataclass(frozen=True, eq=False)
class Series:
    """The evaluations of one run."""

    run: Run
    steps: Array
    values: Array

    def at(self, step: float) -> float:
        """The score of the last evaluation up to `step`; NaN before the first."""
        place = int(np.searchsorted(self.steps, step, "right")) - 1
        if place < 0:
            return float("nan")
        return float(self.values[place])

    @property
    def ended(self) -> bool:
        """Whether the run had all of its steps."""
        return self.run.state == DONE or self.run.step >= self.run.total_steps


@dataclass(frozen=True)
class Cell:
    """One method on one environment. `counted`: the runs behind every statistic; `aside`: why the others are not."""

    method: str
    env: str
    series: list[Series]  # of all runs that have evaluations
    counted: list[Series]
    aside: dict[Path, str]
    points: int = POINTS

    @cached_property
    def horizon(self) -> float:
        """The last step that all counted runs have reached."""
        return min(float(one.steps[-1]) for one in self.counted)

    @cached_property
    def grid(self) -> Array:
        """Steps of the mean curves: those of the evaluations if all counted runs share them, else evenly spaced."""
        first, *others = (one.steps[one.steps <= self.horizon] for one in self.counted)
        if len(first) <= self.points and all(np.array_equal(first, other) for other in others):
            return first
        begin = max(float(one.steps[0]) for one in self.counted)
        return np.unique(np.linspace(begin, self.horizon, self.points))

    @cached_property
    def curves(self) -> Array:
        """[runs, points]: scores, interpolated linearly between evaluations."""
        return np.array([np.interp(self.grid, one.steps, one.values) for one in self.counted])

    @cached_property
    def band(self) -> tuple[Array, Array]:
        """[points] twice: the 95 % interval of the IQM."""
        return interval([self.curves])

    @cached_property
    def centre(self) -> Array:
        """[points]: the IQM of the curves."""
        return iqm(self.curves, 0)

    @cached_property
    def final(self) -> Array:
        """[runs]: the last evaluation up to the horizon."""
        return np.array([one.at(self.horizon) for one in self.counted])

    @cached_property
    def final_interval(self) -> tuple[float, float]:
        """95 % interval of the IQM of the final scores; NaN for one run."""
        low, high = interval([self.final])
        return float(low), float(high)

    @cached_property
    def best(self) -> Array:
        """[runs]: the best evaluation up to the horizon."""
        return np.array([one.values[one.steps <= self.horizon].max() for one in self.counted])

    @cached_property
    def differences(self) -> list[Difference]:
        """Config keys that differ among the runs that are averaged here, and all their values."""
        return differences([one.run for one in self.counted])


class Comparison:
    """All cells of a report, methods and environments in a fixed order."""

    def __init__(self, cells: Sequence[Cell], silent: dict[Path, str]):
        self.cells = {(cell.method, cell.env): cell for cell in cells}
        self.methods = [*dict.fromkeys(cell.method for cell in cells)]
        self.envs = sorted({cell.env for cell in cells})
        self.aside = dict(silent)
        self.names: dict[Path, str] = {}  # of methods, by the folder of a run
        for cell in cells:
            self.aside.update(cell.aside)
            for one in cell.series:
                self.names[one.run.path] = cell.method

    def __iter__(self) -> Iterator[Cell]:
        for env in self.envs:
            yield from self.on(env)

    def of(self, method: str) -> list[Cell]:
        """The cells of one method, in the order of environments."""
        return [self.cells[method, env] for env in self.envs if (method, env) in self.cells]

    def on(self, env: str) -> list[Cell]:
        """The cells of one environment, in the order of methods."""
        return [self.cells[method, env] for method in self.methods if (method, env) in self.cells]

    @property
    def gaps(self) -> list[str]:
        """Methods that lack an environment which others have."""
        pairs = product(self.methods, self.envs)
        return [f"{name} on {env}" for name, env in pairs if (name, env) not in self.cells]

    @cached_property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """For each environment the lowest and highest evaluation of all counted runs: 0 and 1 of normalised scores."""
        bounds = {}
        for env in self.envs:
            pool: list[Array] = []
            for cell in self.on(env):
                pool += [one.values for one in cell.counted]
            values = np.hstack(pool)
            bounds[env] = float(np.min(values)), float(np.max(values))
        return bounds

    def normalised(self, cell: Cell, scores: Array) -> Array:
        """Scores on an environment from 0 to 1; 1/2 where all runs score the same."""
        low, high = self.bounds[cell.env]
        if high <= low:
            return np.full_like(scores, 0.5)
        return (scores - low) / (high - low)

    def strata(self, method: str, what: str = "final") -> list[Array]:
        """Normalised scores of a method, one stratum for each environment."""
        return [self.normalised(cell, getattr(cell, what)) for cell in self.of(method)]

    def shared(self, x: str, y: str) -> tuple[list[Array], list[Array]]:
        """Final scores of two methods on the environments that both have."""
        xs, ys = [], []
        for env in self.envs:
            if (x, env) in self.cells and (y, env) in self.cells:
                xs.append(self.cells[x, env].final)
                ys.append(self.cells[y, env].final)
        return xs, ys

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """Per method the performance profile at THRESHOLDS, and the two ends of its interval."""
        found = {}
        for name in self.methods:
            strata = self.strata(name)
            found[name] = (profile(strata, THRESHOLDS), *profile_interval(strata, THRESHOLDS))
        return found

    @cached_property
    def pairs(self) -> list[Pair]:
        """(X, Y, P(X > Y), interval), the likelier winner first, the surest pairs first."""
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


def compare(runs: Iterable[Run], by: Sequence[str] = (), score: str = SCORE, mark: str = "") -> Comparison:
    """Runs grouped by algorithm, the keys `by`, and environment. `mark` is added to the names of the methods."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.algo, str(run.path))):
        groups.setdefault((method(run, by) + mark, run.env), []).append(run)
    silent: dict[Path, str] = {}
    cells = []
    total = len(groups)
    for (name, env), members in groups.items():
        series = []
        for run in members:
            pairs = [(row["step"], row[score]) for row in run.rows if score in row and row["step"] <= LAST_STEP]
            if pairs:
                series.append(Series(run, *np.array(pairs, float).T))
            elif run.rows:
                silent[run.path] = f"no {score} yet"
            else:
                silent[run.path] = "no rows yet"
        if series:
            counted, aside = _count(series)
            points = max(FEWEST, min(POINTS, 3000 // total, 12_000 // len(counted)))
            cells.append(Cell(name, env, series, counted, aside, points))
    return Comparison(cells, silent)


def rivals(comparison: Comparison) -> list[tuple[str, str]]:
    """Pairs of methods to be compared: namesakes where there is a baseline, else all with all."""
    names = comparison.methods
    namesakes = [(name, name + BASELINE) for name in names if name + BASELINE in names]
    if namesakes:
        return namesakes
    every = list(combinations(names, 2))
    return [(x, y) for x, y in every if x.endswith(BASELINE) != y.endswith(BASELINE)] or every


def joined(one: Comparison, other: Comparison) -> Comparison:
    """Two comparisons as one, a method next to its namesake."""
    cells = [*one.cells.values(), *other.cells.values()]
    return Comparison(sorted(cells, key=lambda cell: cell.method), {**one.aside, **other.aside})


def method(run: Run, by: Sequence[str] = ()) -> str:
    """`sac`, or `sac, gamma=0.9` by `algo.gamma`."""
    parts = [run.algo]
    for key in by:
        value = check.lookup(key, run.config)
        shown = "-" if value is check.ABSENT else check.show(value)
        parts.append(f"{key.rpartition('.')[2]}={shown}")
    return ", ".join(parts)


def _count(series: list[Series]) -> tuple[list[Series], dict[Path, str]]:
    """The runs that are averaged, and why each other one is not.

    Of runs with the same config and seed only the longest counts. Of these, runs that reached their end count; where
    none has, all do. All that count must share a step (`_overlapping`).
    """
    longest: dict[str, Series] = {}
    aside: dict[Path, str] = {}
    for one in sorted(series, key=lambda one: one.run.step):
        key = _identity(one.run)
        if key in longest:
            aside[longest[key].run.path] = f"same config and seed as {one.run.path}"
        longest[key] = one
    distinct = [one for one in series if one.run.path not in aside]
    whole = [one for one in distinct if one.ended] or distinct
    counted = _overlapping(whole)
    for one in distinct:
        run = one.run
        if one not in whole:
            aside[run.path] = f"{run.state} at {run.step:,} of {run.total_steps:,} steps"
        elif one not in counted:
            aside[run.path] = f"evaluated only {_stretch(one)}, no step in common with the runs that count"
    return counted, aside


def _overlapping(series: list[Series]) -> list[Series]:
    """The largest set of runs with a step in common that lies between the first and the last evaluation of each.

    Of sets of equal size, the one whose shortest run goes furthest. Without such a step a mean over runs has no
    meaning: one run has ended before another was evaluated for the first time.
    """
    first = np.array([one.steps[0] for one in series])
    last = np.array([one.steps[-1] for one in series])
    together = (first <= last[:, None]) & (last[:, None] <= last)  # [step at which a run ends, run]
    sizes = together.sum(1)
    chosen = max(range(len(series)), key=lambda place: (sizes[place], last[place]))
    return [one for one, inside in zip(series, together[chosen], strict=True) if inside]


def _stretch(one: Series) -> str:
    first, last = one.steps[[0, -1]]
    if first == last:
        return f"at step {first:,.0f}"
    return f"from step {first:,.0f} to {last:,.0f}"


def _identity(run: Run) -> str:
    """The config of a run without keys that change no result, as text."""
    own = {key: value for key, value in run.config.items() if key not in ("run_dir", "name", "logger", "resume")}
    return check.show(own)


def differences(runs: Sequence[Run]) -> list[Difference]:
    """Config keys that differ between runs, and all their values. Seeds and folders are left out."""
    configs = []
    for run in runs:
        configs.append({key: check.show(value) for key, value in check.leaves(run.config)})
    found = []
    for key in dict.fromkeys(chain.from_iterable(configs)):
        values = list(dict.fromkeys(config.get(key, "-") for config in configs))
        if len(values) > 1 and key not in ("seed", "run_dir", "name") and not key.startswith("logger."):
            found.append((key, values))
    return found
