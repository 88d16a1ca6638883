"""The tables of a report, with rounded numbers on the page and exact numbers in CSV files."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlrun import dotted
from rlrun.report.compare import Cell, Comparison, class_of, method
from rlrun.report.names import printable, shortened
from rlrun.report.runs import StoredRun
from rlrun.report.statistics import iqm
from rlrun.snapshot.atomic import replace_text
from rlrun.telemetry.formatting import clock, memory, number

Rows = list[list[object]]
TICK = 1e-6  # seconds; shorter times cannot be measured
KEYS = 3  # maximum number of keys in a line about differing configs
VALUES = 3  # maximum number of values of each of these keys
SUCCESS = "eval/success_rate"
FORMULA = ("=", "+", "-", "@")  # first characters of formulas in spreadsheets


@dataclass(frozen=True)
class ReportTable:
    """A table. numeric: right-aligned columns. raw_header and raw: replace header and rows in the CSV file."""

    name: str
    title: str
    header: Sequence[str]
    rows: Rows
    numeric: Sequence[int] = ()
    note: str = ""
    raw_header: Sequence[str] = ()
    raw: Sequence[Sequence[object]] = ()

    @property
    def shown(self) -> "ReportTable":
        """The table without empty columns."""
        columns = list(zip(*self.rows, strict=True))
        kept = [index for index, cells in enumerate(columns) if set(cells) != {""}]
        header = [self.header[index] for index in kept]
        rows = [[row[index] for index in kept] for row in self.rows]
        return replace(self, header=header, rows=rows, numeric=[kept.index(p) for p in self.numeric if p in kept])

    def save(self, folder: Path) -> None:
        """Writes the table to FOLDER/NAME.csv. Raises OSError."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        for row in (self.raw_header or self.header, *(self.raw or self.rows)):
            writer.writerow(map(as_text, row))
        replace_text(folder / f"{self.name}.csv", text.getvalue())


def scores(comparison: Comparison) -> ReportTable:
    """Returns the table of final and best scores, with a row for each environment and method."""
    rows: Rows = []
    raw: Rows = []
    for cell in comparison:
        final = cell.final
        low, high = cell.final_interval
        figures = [iqm(final), low, high, final.mean(), np.median(final), iqm(cell.best)]
        centre, _, _, mean, median, best = [number(float(figure)) for figure in figures]
        about = [cell.env, cell.method, len(final)]
        rows.append([*about, f"{cell.horizon:,.0f}", centre, span(low, high), mean, median, best])
        raw.append([*about, int(cell.horizon), *map(float, figures)])
    header = ("environment", "method", "runs", "steps", "IQM", "95 % interval", "mean", "median", "best, IQM")
    note = "Final: the last evaluation up to these steps. Best: the highest one, which overestimates the policy."
    raw_header = ("env", "method", "runs", "steps", "iqm", "iqm_low", "iqm_high", "mean", "median", "best_iqm")
    return ReportTable("scores", "Final and best scores", header, rows, range(2, 9), note, raw_header, raw)


def at_steps(comparison: Comparison, steps: Sequence[int] = ()) -> ReportTable:
    """Returns the table of scores of all methods at the same steps; default: quarters of the shortest horizon."""
    rows: Rows = []
    raw: Rows = []
    for env in comparison.envs:
        cells = {cell.method: cell for cell in comparison.on(env)}
        end = min(cell.horizon for cell in cells.values())
        quarters = sorted({int(end * part) for part in (0.25, 0.5, 0.75, 1)})
        for step in steps or quarters:
            found = [_score_at(cells.get(name), step) for name in comparison.methods]
            if steps or any(score is not None for score in found):
                rows.append([env, f"{step:,}", *map(or_empty, found)])
                raw.append([env, step, *found])
    header = ("environment", "step", *comparison.methods)
    note = "IQM of the last evaluation up to that step."
    raw_header = ("env", *header[1:])
    return ReportTable("steps", "Score at given steps", header, rows, range(1, len(header)), note, raw_header, raw)


def _score_at(cell: Cell | None, step: int) -> float | None:
    """Returns the IQM of a method's scores at a step.

    Returns None if there is no such method, if a run has no evaluation up to the step, or if the step is above the
    horizon.
    """
    if cell is None or step > cell.horizon:
        return None
    found = [one.at(step) for one in cell.counted]
    if np.isnan(found).any():
        return None
    return float(iqm(found))


def or_empty(value: float | None, form: Callable[[float], str] = number) -> str:
    """Returns a number as text for the page, or "" for None."""
    if value is None:
        return ""
    return form(value)


def profiles(comparison: Comparison) -> ReportTable:
    """Returns the table of performance profiles, which is only written as a CSV file."""
    raw: Rows = []
    for name in comparison.methods:
        columns = (comparison.thresholds, *comparison.profiles[name])
        for row in zip(*columns, strict=True):
            raw.append([name, *map(float, row)])
    return ReportTable("profile", "", ("method", "score", "fraction_above", "low", "high"), raw)


def chances(comparison: Comparison) -> ReportTable:
    """Returns the table of probabilities of improvement, with a row for each pair of methods."""
    rows: Rows = []
    raw: Rows = []
    for x, y, chance, ends in comparison.pairs:
        probability = above = ""
        if np.isfinite(ends[0]):
            probability = f"{chance:.2f}"
            above = "no"
            if ends[0] > 0.5:
                above = "yes"
        rows.append([x, y, probability, span(*ends, "{:.2f}"), above])
        raw.append([x, y, chance, *ends])
    header = ("X", "Y", "P(X > Y)", "95 % interval", "above one half")
    title = "Probability that a run of X scores more than one of Y"
    return ReportTable("improvement", title, header, rows, (2, 3), "", ("x", "y", "p", "low", "high"), raw)


def cost(comparison: Comparison) -> ReportTable:
    """Returns the table of time and memory, with a row for each environment and method."""
    rows: Rows = []
    raw: Rows = []
    for cell in comparison:
        runs = [one.run for one in cell.counted]
        seconds = [run.last("wall_s") or 0.0 for run in runs]
        speeds = [run.step / second for run, second in zip(runs, seconds, strict=True) if second > TICK]
        speed = None
        if speeds:
            speed = float(np.median(speeds))
        hosts = ", ".join(sorted({run.host for run in runs} - {""}))
        times = [float(np.median(seconds)), max(seconds)]
        sizes = [_most_memory(runs, "sys/rss_mb"), _most_memory(runs, "sys/gpu_mb")]
        about = [cell.env, cell.method]
        rows.append([*about, *map(clock, times), or_empty(speed), *(or_empty(size, memory) for size in sizes), hosts])
        raw.append([*about, *times, speed, *sizes, hosts])
    header = ("environment", "method", "time, median", "longest", "steps/s", "memory", "GPU", "host")
    raw_header = ("env", "method", "seconds_median", "seconds_longest", "steps_per_s", "rss_mb", "gpu_mb", "host")
    note = "Memory: the maximum over all runs."
    return ReportTable("cost", "Time and memory", header, rows, range(2, 7), note, raw_header, raw)


def _most_memory(runs: Sequence[StoredRun], key: str) -> float | None:
    """Returns the largest value of a memory metric over all runs, in MB, or None if it is 0 or missing."""
    largest = max(run.most(key) or 0.0 for run in runs)
    if largest == 0:
        return None
    return largest


def configs(comparison: Comparison) -> ReportTable:
    """Returns the table of config keys that differ among averaged runs, a row for each method, environment and key."""
    rows: Rows = []
    for name in comparison.methods:
        for cell in comparison.of(name):
            for key, values in cell.differences:
                rows.append([cell.method, cell.env, key, ", ".join(values)])
    header = ("method", "environment", "key", "values")
    note = "Without seeds, folders and loggers. by=KEY separates the runs."
    return ReportTable("configs", "Configs that differ among averaged runs", header, rows, (), note)


def unequal(comparison: Comparison) -> ReportTable:
    """Returns the table of settings in which methods differ, a row for each environment and key."""
    rows: Rows = []
    for env in comparison.envs:
        for key, values in comparison.unequal(env).items():
            rows.append([env, key, *(", ".join(values.get(name, ())) for name in comparison.methods)])
    header = ("environment", "key", *comparison.methods)
    note = "Without keys that only one method has, and without names, folders and loggers."
    return ReportTable("unequal", "Settings in which methods differ", header, rows, (), note)


def conditions(comparison: Comparison) -> list[str]:
    """Returns a line for each environment in which methods differ in other settings than algorithm and network.

    Examples are steps, evaluations and seeds. Different presets count only if some method has none.
    """
    lines = []
    for env in comparison.envs:
        keys = []
        for key, values in comparison.unequal(env).items():
            own_presets = key == "preset" and ["null"] not in values.values()
            if not key.startswith(("algo.", "network.")) and not own_presets:
                keys.append(key)
        if keys:
            more = ""
            if len(keys) > KEYS:
                more = f" and {len(keys) - KEYS} more"
            lines.append(f"{shortened(env)}: {', '.join(map(shortened, keys[:KEYS]))}{more}")
    return lines


def mixtures(comparison: Comparison) -> list[str]:
    """Returns a line for each method and environment whose runs differ in their config, with keys and values."""
    return [_mixture(cell) for cell in comparison if cell.differences]


def _mixture(cell: Cell) -> str:
    parts = []
    names = []
    for key, values in cell.differences[:KEYS]:
        names.append(key)
        parts.append(f"{shortened(key)} {_some(values)}")
    if len(cell.differences) > KEYS:
        parts.append(f"and {len(cell.differences) - KEYS} more")
    keys = shortened(",".join(names), 90)
    return f"{shortened(cell.method)} on {shortened(cell.env)}: {'; '.join(parts)} (by={keys} separates them)"


def _some(values: Sequence[str]) -> str:
    text = ", ".join(shortened(value, 24) for value in values[:VALUES])
    if len(values) > VALUES:
        text += f", ... ({len(values)} values)"
    return text


def every_run(comparison: Comparison, runs: Sequence[StoredRun], score: str, by: Sequence[str]) -> ReportTable:
    """Returns the table of all runs, including those that do not count."""
    rows: Rows = []
    raw: Rows = []
    for run in runs:
        value = run.last(score)
        success = run.last(SUCCESS)
        remarks = "; ".join(filter(None, [comparison.uncounted.get(run.path), *run.faults]))
        name = comparison.names.get(run.path, method(run, by))
        steps = f"{run.step:,} of {run.total_steps:,}"
        scores = [or_empty(value), or_empty(success)]
        rows.append([name, _env_of(run), str(run.seed), run.state, steps, *scores, remarks, str(run.path)])
        raw.append(
            [name, run.env, run.seed, run.state, run.step, run.total_steps, value, success, remarks, str(run.path)]
        )
    header = ("method", "environment", "seed", "state", "steps", "last score", "success rate", "remarks", "folder")
    raw_header = (
        "method", "env", "seed", "state", "step", "total_steps", "last_score", "success_rate", "remarks", "folder",
    )  # fmt: skip
    return ReportTable("runs", "Every run", header, rows, (2, 4, 5, 6), "", raw_header, raw)


def _env_of(run: StoredRun) -> str:
    """Returns the environment of a run without its file, and the constructor arguments of its config."""
    name = class_of(run.env)
    kwargs = dotted.lookup("env.kwargs", run.config)
    if isinstance(kwargs, dict) and kwargs:
        name += f" {dotted.show(kwargs)}"
    return name


def curves(comparison: Comparison) -> ReportTable:
    """Returns the table of learning curves, which is only written as a CSV file."""
    raw: Rows = []
    for cell in comparison:
        columns = (cell.grid, cell.curves.mean(0), cell.centre, *cell.band)
        for step, *figures in zip(*columns, strict=True):
            raw.append([cell.env, cell.method, len(cell.counted), int(step), *map(float, figures)])
    return ReportTable("curves", "", ("env", "method", "runs", "step", "mean", "iqm", "iqm_low", "iqm_high"), raw)


def span(low: Any, high: Any, form: str = "") -> str:
    """Returns an interval as text. form: format of its ends, like `{:.2f}`; "" formats them with `number`."""
    if not np.isfinite(low):
        return "too few runs"
    if form:
        return f"{form.format(float(low))} to {form.format(float(high))}"
    return f"{number(float(low))} to {number(float(high))}"


def as_text(cell: object) -> object:
    """Returns a cell for a CSV file. Text that a spreadsheet would execute as a formula gets an apostrophe in front."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    if len(text) > 1 and text.startswith(FORMULA):
        return f"'{text}"
    return text
