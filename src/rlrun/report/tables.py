"""The tables of a report: as text on the page, with every digit in CSV files."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlrun.report.compare import THRESHOLDS, Cell, Comparison, method
from rlrun.report.names import printable, shortened
from rlrun.report.runs import Run
from rlrun.report.statistics import iqm
from rlrun.snapshot.atomic import replace_text
from rlrun.telemetry.view import clock, memory, number

Rows = list[list[Any]]
TICK = 1e-6  # seconds; no clock tells less
KEYS, VALUES = 3, 3  # that a line about differing configs names


FORMULA = ("=", "+", "-", "@")  # how a spreadsheet's formulas begin


@dataclass(frozen=True)
class Table:
    """`numeric` columns stand right. `raw` and its header go into the CSV where they say more than the page."""

    name: str
    title: str
    header: Sequence[str]
    rows: Rows
    numeric: Sequence[int] = ()
    note: str = ""
    raw_header: Sequence[str] = ()
    raw: Sequence[Sequence[Any]] = ()

    @property
    def shown(self) -> "Table":
        """Without columns that say nothing."""
        kept = [place for place in range(len(self.header)) if any(row[place] != "" for row in self.rows)]
        header, rows = [self.header[place] for place in kept], [[row[place] for place in kept] for row in self.rows]
        return replace(self, header=header, rows=rows, numeric=[kept.index(p) for p in self.numeric if p in kept])

    def save(self, folder: Path) -> None:
        rows = [self.raw_header or self.header, *(self.raw or self.rows)]
        text = io.StringIO(newline="")
        csv.writer(text).writerows([[as_text(cell) for cell in row] for row in rows])
        replace_text(folder / f"{self.name}.csv", text.getvalue())


def scores(comparison: Comparison) -> Table:
    rows: Rows = []
    raw: Rows = []
    for cell in comparison:
        final, best = cell.final, cell.best
        low, high = cell.final_interval
        figures = [iqm(final), low, high, final.mean(), np.median(final), iqm(best)]
        centre, *_, mean, median, flattered = (number(float(figure)) for figure in figures)
        about = [cell.env, cell.method, len(final)]
        rows.append([*about, f"{cell.horizon:,.0f}", centre, span(low, high), mean, median, flattered])
        raw.append([*about, int(cell.horizon), *map(float, figures)])
    header = ("environment", "method", "runs", "steps", "IQM", "95 % interval", "mean", "median", "best, IQM")
    note = "Final: the last evaluation. Best: the highest of each run, which flatters: it was chosen by its score."
    raw_header = ("env", "method", "runs", "steps", "iqm", "iqm_low", "iqm_high", "mean", "median", "best_iqm")
    return Table("scores", "Final and best scores", header, rows, range(2, 9), note, raw_header, raw)


def at_steps(comparison: Comparison, steps: Sequence[int] = ()) -> Table:
    """Scores where all methods have had the same budget; by default at quarters of the shortest."""
    rows: Rows = []
    for env in comparison.envs:
        cells = {cell.method: cell for cell in comparison.on(env)}
        end = min(cell.horizon for cell in cells.values())
        for step in steps or sorted({int(end * part) for part in (0.25, 0.5, 0.75, 1)}):
            row = [env, f"{step:,}"]
            for name in comparison.methods:
                reached = name in cells and step <= cells[name].horizon
                found = [one.at(step) for one in cells[name].counted] if reached else [np.nan]
                row.append("" if np.isnan(found).any() else number(float(iqm(found))))
            if steps or any(row[2:]):
                rows.append(row)
    header = ("environment", "step", *comparison.methods)
    note = "IQM of the last evaluation up to that step."
    return Table("steps", "Score at given steps", header, rows, range(1, len(header)), note)


def profiles(comparison: Comparison) -> Table:
    raw: Rows = []
    for name in comparison.methods:
        columns = (THRESHOLDS, *comparison.profiles[name])
        raw += [[name, *map(float, row)] for row in zip(*columns, strict=True)]
    return Table("profile", "", ("method", "score", "fraction_above", "low", "high"), raw)


def chances(comparison: Comparison) -> Table:
    rows: Rows = []
    raw: Rows = []
    for x, y, chance, ends in comparison.pairs:
        rows.append([x, y, f"{chance:.2f}", span(*ends, "{:.2f}"), "yes" if ends[0] > 0.5 else "no"])
        raw.append([x, y, chance, *ends])
    header = ("X", "Y", "P(X > Y)", "95 % interval", "above one half")
    title = "Probability that a run of X scores more than one of Y"
    return Table("improvement", title, header, rows, (2, 3), "", ("x", "y", "p", "low", "high"), raw)


def cost(comparison: Comparison) -> Table:
    rows: Rows = []
    for cell in comparison:
        runs = [one.run for one in cell.counted]
        seconds = [run.last("wall_s") or 0.0 for run in runs]
        speeds = [run.step / second for run, second in zip(runs, seconds, strict=True) if second > TICK]
        ram, gpu = (max(run.most(key) or 0.0 for run in runs) for key in ("sys/rss_mb", "sys/gpu_mb"))
        row = [cell.env, cell.method, clock(float(np.median(seconds))), clock(max(seconds))]
        row += [number(float(np.median(speeds))) if speeds else "", memory(ram) if ram else ""]
        rows.append([*row, memory(gpu) if gpu else "", ", ".join(sorted({run.host for run in runs if run.host}))])
    header = ("environment", "method", "time, median", "longest", "steps/s", "memory", "GPU", "host")
    return Table("cost", "Time and memory", header, rows, range(2, 7), "Memory: the most that any run held.")


def configs(comparison: Comparison) -> Table:
    rows: Rows = [
        [cell.method, cell.env, key, ", ".join(values)]
        for name in comparison.methods
        for cell in comparison.of(name)
        for key, values in cell.differences
    ]
    header, note = ("method", "environment", "key", "values"), "Seeds and folders left out. by=KEY tells them apart."
    return Table("configs", "Configs that differ among runs that were put together", header, rows, (), note)


def mixtures(comparison: Comparison) -> list[str]:
    """A line for each method and environment whose runs have different configs, with the keys and their values."""
    return [_mixture(cell) for cell in comparison if cell.differences]


def _mixture(cell: Cell) -> str:
    named = cell.differences[:KEYS]
    parts = [f"{shortened(key)} {_some(values)}" for key, values in named]
    if len(cell.differences) > KEYS:
        parts.append(f"and {len(cell.differences) - KEYS} more")
    keys = shortened(",".join(key for key, _ in named), 90)
    return f"{shortened(cell.method)} on {shortened(cell.env)}: {'; '.join(parts)} (by={keys} keeps them apart)"


def _some(values: Sequence[str]) -> str:
    text = ", ".join(shortened(value, 24) for value in values[:VALUES])
    return f"{text}, ... ({len(values)} values)" if len(values) > VALUES else text


def every_run(comparison: Comparison, runs: Sequence[Run], score: str, by: Sequence[str]) -> Table:
    rows: Rows = []
    for run in runs:
        value = run.last(score)
        remarks = [*filter(None, [comparison.aside.get(run.path)]), *run.faults]
        row = [comparison.names.get(run.path, method(run, by)), run.env, str(run.seed), run.state]
        row += [f"{run.step:,} of {run.total_steps:,}", "" if value is None else number(value)]
        rows.append([*row, "; ".join(remarks), str(run.path)])
    header = ("method", "environment", "seed", "state", "steps", "last score", "remarks", "folder")
    return Table("runs", "Every run", header, rows, (2, 4, 5))


def curves(comparison: Comparison) -> Table:
    raw: Rows = [
        [cell.env, cell.method, len(cell.counted), int(step), *map(float, figures)]
        for cell in comparison
        for step, *figures in zip(cell.grid, cell.curves.mean(0), cell.centre, *cell.band, strict=True)
    ]
    return Table("curves", "", ("env", "method", "runs", "step", "mean", "iqm", "iqm_low", "iqm_high"), raw)


def span(low: Any, high: Any, form: str = "") -> str:
    """An interval as text."""
    if not np.isfinite(low):
        return "one run"
    low, high = (form.format(end) if form else number(float(end)) for end in (low, high))
    return f"{low} to {high}"


def as_text(cell: Any) -> Any:
    """A cell that a spreadsheet takes for text: one that begins like a formula gets an apostrophe before it."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if len(text) > 1 and text.startswith(FORMULA) else text
