"""Describes the pictures of a sweep as panels of marks, which `report/svg.py` draws.

Colours mean the same in all pictures: blue trials trained to the last rung ("whole" in code and CSS), grey ones were
paused before, and the winner is orange.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rlrun.dotted import show
from rlrun.report.figures import (
    BAR,
    DOT,
    LABEL,
    LINE,
    NAME,
    POINT,
    RUNS,
    SINGLE,
    Axis,
    Mark,
    Panel,
    Picture,
    axis,
    downwards,
    estimate,
    in_order,
    short,
)
from rlrun.report.names import shortened
from rlrun.report.statistics import Array, interval, iqm
from rlrun.sweep.importance import importances
from rlrun.sweep.ranges import Listed, Range
from rlrun.sweep.scale import MARGIN, scale
from rlrun.sweep.search import BUILT_IN
from rlrun.sweep.standings import Standing, last_results, short_names, shown
from rlrun.sweep.stored import Stored
from rlrun.sweep.trials import Trial, Trials

WHOLE, WINNER, PAUSED, CROSS = 0, 1, 6, 6  # colours, in the order of page.css; CROSS is the marker of failed trials
COLOURS = {"paused": PAUSED, "whole": WHOLE, "winner": WINNER}  # by CSS class, in the order in which they are drawn
POINTS = 60  # most evaluations of a curve
OUTLIER = 3  # interquartile ranges below the lower quartile, at which axes of scores end; lower scores are at the edge
FAR = 20  # above this ratio of the longest to the shortest time, the axis of seconds is logarithmic
MISSING = -0.12  # position of trials without the key, on an axis of parallel coordinates
CLASSES = ((0.05, "q3"), (0.2, "q2"), (0.5, "q1"), (1.0, "q0"))  # fraction of the best trials, and their CSS class


def draw(stored: Stored) -> Iterator[Picture]:
    """Yields the pictures of a sweep that has scores, in the order of the page."""
    trials, metric = stored.trials, stored.cfg.metric
    drawn = shown(trials)
    best = [one for one in drawn if one.score is not None]
    if not best:
        return
    found = sorted(drawn, key=lambda one: one.number)
    scores = _score_axis(best)
    if trials.winner is not None and any(one.fresh is not None for one in found):
        yield Picture("winners", "Winners", [winners(trials)], "score on fresh seeds")
    yield Picture("history", "History", [history(found, trials, scores)], "trial", "score")
    score_label = metric.replace("/", " ").replace("_", " ")
    yield Picture("rungs", "Rungs", curves(stored, found), "environment steps", score_label)
    # the values of a population change, so its first scores say nothing about the last values
    if stored.cfg.kind.name == "search":
        keys = importances(stored.space.dimensions, trials, stored.cfg.search not in BUILT_IN)
        if any(value > chance for value, chance in keys.values()):
            yield Picture(
                "importances", "Importances", [importance_bars(keys)], "fraction of the differences explained"
            )
    panels = [one_key(stored, key, found, scores) for key in stored.space.keys]
    yield Picture("slices", "Slices", panels, "each searched key", "score")
    yield Picture("parallel", "Parallel coordinates", [parallel(stored, best)], "each searched key, and score")
    yield Picture("seconds", "Score against time", [seconds(best, scores)], "seconds of training per run", "score")


# --- one picture each


def history(found: Sequence[Standing], trials: Trials, scores: Axis) -> Panel:
    """Returns the score of every trial by its number, and the best so far."""
    marks = []
    for one in found:
        if one.score is not None:
            marks.append(_dot(one, one.number, one.score, scores))
        elif one.state == "failed":
            why = next(iter(one.trial.failures.values()))
            x = np.array([float(one.number)])
            y = np.array([scores.low])
            marks.append(Mark(POINT, CROSS, x, y, text=f"trial {one.number} failed: {why}", look="failed"))
    numbers, values = best_so_far(found)
    x = np.repeat([*numbers, len(trials) - 1], 2)[1:-1]  # a staircase, to the last trial
    marks.append(Mark(LINE, WHOLE, x.astype(float), np.maximum(np.repeat(values, 2)[: len(x)], scores.low)))
    return Panel("", in_order(marks), axis([0, max(1, len(trials) - 1)], margin=0.02), scores)


def best_so_far(found: Sequence[Standing]) -> tuple[list[int], list[float]]:
    """Returns the trials that were the best of all trials up to their number, and their scores.

    A trial with a score at a later rung is better than one without.
    """
    numbers: list[int] = []
    scores: list[float] = []
    best = (-1, 0.0)
    for one in found:
        if one.score is not None and one.rung is not None and (one.rung, one.score) > best:
            best = one.rung, one.score
            numbers.append(one.number)
            scores.append(one.score)
    return numbers, scores


def curves(stored: Stored, found: Sequence[Standing]) -> list[Panel]:
    """Returns a panel for each environment with the learning curve of every trial, on an axis with the rungs."""
    panels = []
    for env, rungs in stored.rung_steps.items():
        marks = []
        for one in found:
            steps, values = curve(one.trial, env, rungs)
            if not len(steps):
                continue
            kept = np.unique(np.linspace(0, len(steps) - 1, POINTS).round().astype(int))
            ends = (np.full(len(kept), np.nan), np.full(len(kept), np.nan))
            if len(values) > 1:
                ends = (values.min(0)[kept], values.max(0)[kept])
            marks.append(Mark(SINGLE, one.number, steps[kept], values.mean(0)[kept], ends, look=_look(one)))
        if not marks:
            continue
        title = env if len(stored.rung_steps) > 1 else ""
        low = min(mark.x[0] for mark in marks)
        values = np.hstack([mark.y for mark in marks])
        y = axis([_least(values), values.max()])  # page.css cuts off what is below
        panels.append(Panel(title, sorted(marks, key=_layer), _step_axis(low, rungs), y))
    return panels


def curve(trial: Trial, env: str, rungs: Sequence[int]) -> tuple[Array, Array]:
    """Returns the steps [E] and the metric [runs, E] of the evaluations of a trial in an environment.

    The runs are those of the search, up to the evaluations that all of them have. rungs: steps of the rungs; the
    evaluations between two of them are evenly spaced.
    """
    counts = {0: 0}  # step of a rung -> number of evaluations up to it
    for job, result in trial.results.items():
        if job.env == env:
            counts[rungs[job.rung]] = len(result.evaluations)
    runs = [one.evaluations for folder, one in last_results(trial).items() if folder in _folders(trial, env)]
    if not runs:
        return np.empty(0), np.empty((0, 0))
    shared = min(map(len, runs))
    steps = np.interp(np.arange(1, shared + 1), sorted(counts.values()), sorted(counts))
    return steps, np.array([run[:shared] for run in runs], float)


def one_key(stored: Stored, key: str, found: Sequence[Standing], scores: Axis) -> Panel:
    """Returns the score of every trial against its value of a searched key, on the scale of its range."""
    (searched,) = [dimension.range for dimension in stored.space.dimensions if dimension.key == key]
    marks = []
    for one in found:
        if one.score is None or key not in one.trial.values:
            continue
        value = one.trial.values[key]
        across = searched.position(value) + _jitter(one.number, searched)
        marks.append(_dot(one, across, one.score, scores, f"{key}={show(value)}"))
    return Panel(key, sorted(marks, key=_layer), scale(searched), scores)


def parallel(stored: Stored, best: Sequence[Standing]) -> Panel:
    """Returns one line per trial over the axes of all searched keys, the best trials on top."""
    keys = stored.space.keys
    names = short_names(keys)
    ranges = [dimension.range for dimension in stored.space.dimensions]
    marks = []
    found = [one.score for one in best if one.score is not None]
    last = Axis(min(found), max(found), (), ())
    if last.low == last.high:
        last = Axis(last.low - 1, last.high + 1, (), ())
    for rank, one in enumerate(best):
        assert one.score is not None
        height = [MISSING] * len(keys)
        for index, (key, searched) in enumerate(zip(keys, ranges, strict=True)):
            if key in one.trial.values:
                height[index] = searched.position(one.trial.values[key]) + _jitter(one.number, searched)
        height.append(float(last.share(one.score)))
        look = next(look for share, look in CLASSES if rank < share * len(best))
        if one.state == "winner":
            look = "winner"
        text = " ".join([f"trial {one.number}:", short(one.score, 4), *_pairs(one.trial, names)])
        marks.append(Mark(SINGLE, WHOLE, np.arange(len(height), dtype=float), np.array(height), text=text, look=look))
    marks = sorted(reversed(marks), key=lambda mark: mark.look == "winner")
    for index, searched in enumerate(ranges):
        column = scale(searched)
        for position, text in zip(column.ticks, column.labels, strict=True):
            marks.append(_label(index, position, text))
        if any(keys[index] not in one.trial.values for one in best):
            marks.append(_label(index, MISSING, "not set"))
    for score in (last.low, last.high):
        marks.append(_label(len(keys), float(last.share(score)), short(score)))
    columns = Axis(
        -0.7, len(keys) + 0.6, range(len(keys) + 1), [*(shortened(name, 26) for name in names.values()), "score"]
    )
    return Panel("", marks, columns, Axis(MISSING - MARGIN, 1 + MARGIN, (), ()))


def seconds(best: Sequence[Standing], scores: Axis) -> Panel:
    """Returns score against seconds of training, and the front of trials that no other beats in both."""
    marks = [_dot(one, one.seconds, one.score, scores, f"{one.seconds:.1f} s") for one in best if one.score is not None]
    front = pareto(best)  # drawn as a staircase
    x = np.array([one.seconds for one in front]).repeat(2)[1:]
    y = np.array([one.score for one in front], float).repeat(2)[:-1]
    marks.append(Mark(LINE, WINNER, x, np.maximum(y, scores.low)))
    times = [one.seconds for one in best]
    across = axis(times)
    if min(times) > 0 and max(times) / min(times) > FAR:
        low, high = min(times) / 1.2, max(times) * 1.2
        ticks = [factor * 10.0**power for power in range(-3, 8) for factor in (1, 3)]
        ticks = [tick for tick in ticks if low <= tick <= high]
        across = Axis(low, high, ticks, [short(tick) for tick in ticks], log=True)
    return Panel("", in_order(marks), across, scores)


def pareto(found: Sequence[Standing]) -> list[Standing]:
    """Returns the Pareto front of the trials with a score: no other is as fast and better, or as good and faster."""
    front: list[Standing] = []
    scored = [one for one in found if one.score is not None]
    for one in sorted(scored, key=lambda one: (one.seconds, -(one.score or 0.0))):
        if not front or (one.score or 0.0) > (front[-1].score or 0.0):
            front.append(one)
    return front


def importance_bars(found: Mapping[str, tuple[float, float]]) -> Panel:
    """Returns a row for each searched key: its importance as a bar, and its threshold as a line. Only a bar that passes
    the line has a number."""
    marks = []
    for row, (key, (value, chance)) in enumerate(found.items()):
        text = key
        if value > chance:
            text += f": {value:.0%}"
        marks.append(Mark(NAME, WHOLE, np.empty(0), np.array([row + 0.62]), text=text))
        marks.append(Mark(BAR, WHOLE, np.array([0.0, value]), np.array([row + 0.7]).repeat(2)))
        marks.append(Mark(LINE, PAUSED, np.array([chance, chance]), np.array([row + 0.5, row + 0.9]), look="chance"))
    most = max(max(pair) for pair in found.values())
    return Panel("", in_order(marks), axis([0, most], margin=0.0), downwards(len(found)), len(found))


def winners(trials: Trials) -> Panel:
    """Returns a row for each trial with fresh seeds: its interquartile mean with its interval, and its runs."""
    marks = []
    measured = measured_again(trials)
    for row, trial in enumerate(measured):
        strata = fresh_scores(trial)
        scores = np.hstack(strata)
        colour = WINNER if trial.number == trials.winner else WHOLE
        marks += estimate(row, colour, f"trial {trial.number}", float(iqm(scores)), interval(strata))
        marks.append(Mark(RUNS, colour, scores, np.full(len(scores), row + 0.8)))
    across = axis(np.hstack([mark.x for mark in marks]))
    return Panel("", in_order(marks), across, downwards(len(measured)), len(measured))


def measured_again(trials: Trials) -> list[Trial]:
    """Returns the trials whose runs on fresh seeds all have results, best first."""
    found = []
    for trial in trials.trials:
        if trial.fresh_seeds and not trial.failed and trial.has_results(trial.fresh_jobs()):
            found.append(trial)
    return sorted(found, key=lambda trial: -trial.score_of(trial.fresh_jobs()))


def fresh_scores(trial: Trial) -> list[list[float]]:
    """Returns the scores on fresh seeds, a list for each environment."""
    jobs = trial.fresh_jobs()
    return [[trial.results[job].score for job in jobs if job.env == env] for env in trial.envs]


# --- marks and axes


def _dot(one: Standing, x: float, y: float, scores: Axis, more: str = "") -> Mark:
    text = f"trial {one.number}: {short(y, 4)}"
    if more:
        text += f", {more}"
    return Mark(
        DOT, COLOURS[_look(one)], np.array([float(x)]), np.array([max(y, scores.low)]), text=text, look=_look(one)
    )


def _look(one: Standing) -> str:
    if one.state == "winner":
        return "winner"
    return "whole" if one.is_whole else "paused"


def _layer(mark: Mark) -> int:
    """Returns the layer of a mark: the winner is drawn last."""
    return [*COLOURS].index(mark.look)


def _label(x: float, y: float, text: str) -> Mark:
    return Mark(LABEL, WHOLE, np.array([x]), np.array([y]), text=text)


def _pairs(trial: Trial, names: Mapping[str, str]) -> list[str]:
    return [f"{names[key]}={show(value)}" for key, value in trial.values.items()]


def _folders(trial: Trial, env: str) -> set[str]:
    return {job.folder for job in trial.results if job.env == env}


def _jitter(number: int, searched: Range) -> float:
    """Returns a small offset by which trials with the same listed value stand beside each other."""
    if not isinstance(searched, Listed):
        return 0.0
    return 0.6 / len(searched.values) * ((number * 0.618034) % 1 - 0.5)


def _score_axis(best: Sequence[Standing]) -> Axis:
    """Returns the axis of scores."""
    scores = np.array([one.score for one in best], float)
    return axis([_least(scores), scores.max()])


def _least(values: Array) -> float:
    """Returns the lowest value that an axis shows. Outliers are drawn at its edge, to leave room for the others."""
    lower, upper = np.quantile(values, [0.25, 0.75])
    return float(max(values.min(), lower - OUTLIER * max(upper - lower, 1e-9 * abs(lower))))


def _step_axis(low: float, rungs: Sequence[int]) -> Axis:
    """Returns the axis of steps, logarithmic if there are several rungs, with a tick at each."""
    if len(rungs) == 1:
        return axis([0, rungs[-1]], margin=0.02)
    return Axis(low, rungs[-1] * 1.03, rungs, [short(step) for step in rungs], log=True)
