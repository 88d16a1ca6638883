"""The report as files: one HTML page that needs nothing else, beside it every picture as PNG and every table as CSV."""

import csv
import importlib.resources
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rlrun import __version__
from rlrun.report.compare import Cell, Comparison, differences, method
from rlrun.report.figures import Picture, draw, pairs
from rlrun.report.runs import Run, Skipped
from rlrun.report.statistics import interval, iqm
from rlrun.telemetry.view import clock, memory, number


@dataclass(frozen=True)
class Table:
    """Cells as text; `numeric` columns stand right. `raw` goes into the CSV where it says more than the page."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    numeric: Sequence[int] = ()
    note: str = ""
    raw: Sequence[Sequence[object]] = field(default=())
    raw_header: Sequence[str] = ()

    def save(self, folder: Path) -> None:
        with (folder / f"{self.name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([self.raw_header or self.header, *(self.raw or self.rows)])


@dataclass(frozen=True)
class Report:
    comparison: Comparison
    runs: Sequence[Run]
    skipped: Sequence[Skipped]
    score: str
    by: Sequence[str]
    at: Sequence[int]
    command: str

    def write(self, folder: Path) -> Path:
        """Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        pictures = {picture.name: picture for picture in draw(self.comparison, self.score)} if self.cells else {}
        tables = {table.name: table for table in self.tables()}
        for picture in pictures.values():
            picture.save(folder)
        for table in tables.values():
            table.save(folder)
        page = folder / "index.html"
        page.write_text(self._html(pictures, tables), encoding="utf-8")
        return page

    @property
    def cells(self) -> list[Cell]:
        return [*self.comparison.cells.values()]

    def tables(self) -> list[Table]:
        made = [self._scores(), self._at_steps(), self._pairs(), self._cost(), self._configs(), self._runs()]
        return [*made, self._curves()] if self.cells else made[-2:]

    def _html(self, pictures: dict[str, Picture], tables: dict[str, Table]) -> str:
        import jinja2

        room = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        text = (importlib.resources.files("rlrun.report") / "page.html").read_text(encoding="utf-8")
        states = [run.state for run in self.runs]
        return room.from_string(text).render(
            report=self, comparison=self.comparison, pictures=pictures, tables=tables, version=__version__,
            states={state: states.count(state) for state in dict.fromkeys(states)},
            made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), single=len(self.comparison.envs) == 1,
        )  # fmt: skip

    def _scores(self) -> Table:
        rows, raw = [], []
        for env in self.comparison.envs:
            for cell in self.comparison.on(env):
                final, best = cell.final, cell.best
                low, high = map(float, interval([final]))
                figures = [final.mean(), iqm(final), low, high, np.median(final), iqm(best)]
                raw.append([env, cell.method, len(final), int(cell.horizon), *map(float, figures)])
                texts = [number(float(figure)) for figure in figures]
                span = f"{texts[2]} to {texts[3]}" if np.isfinite(low) else "one run"
                rows.append([env, cell.method, len(final), f"{cell.horizon:,.0f}", texts[1], span, texts[0], texts[4]])
                rows[-1].append(texts[5])
        return Table(
            "scores",
            "Final and best scores",
            ("environment", "method", "runs", "steps", "IQM", "95 % interval", "mean", "median", "best, IQM"),
            rows,
            range(2, 9),
            "Final: the last evaluation. Best: the highest of each run, which flatters: it was chosen by its score.",
            raw,
            ("env", "method", "runs", "steps", "mean", "iqm", "iqm_low", "iqm_high", "median", "best_iqm"),
        )

    def _at_steps(self) -> Table:
        """Scores where every method has the same budget."""
        rows: list[list[str]] = []
        for env in self.comparison.envs:
            cells = self.comparison.on(env)
            end = min(cell.horizon for cell in cells)
            for step in self.at or sorted({int(end * part) for part in (0.25, 0.5, 0.75, 1)}):
                found = {cell.method: np.array([one.at(step) for one in cell.counted]) for cell in cells}
                reached = {cell.method for cell in cells if step <= cell.horizon}
                shown = [found.get(name, np.array([np.nan])) if name in reached else None for name in self.methods]
                texts = ["" if x is None or np.isnan(x).any() else number(float(iqm(x))) for x in shown]
                rows.append([env, f"{step:,}", *texts])
        header = ("environment", "step", *self.methods)
        note = "IQM of the last evaluation up to that step."
        return Table("steps", "Score at given steps", header, rows, range(1, len(header)), note)

    @property
    def methods(self) -> list[str]:
        return self.comparison.methods

    def _pairs(self) -> Table:
        found = pairs(self.comparison)
        rows = [
            [x, y, f"{chance:.2f}", f"{ends[0]:.2f} to {ends[1]:.2f}", "yes" if ends[0] > 0.5 else "no"]
            for x, y, chance, ends in found
        ]
        raw = [[x, y, chance, *ends] for x, y, chance, ends in found]
        header = ("X", "Y", "P(X > Y)", "95 % interval", "above one half")
        title = "Probability that a run of X scores more than one of Y"
        return Table("improvement", title, header, rows, (2, 3), "", raw, ("x", "y", "p", "low", "high"))

    def _cost(self) -> Table:
        rows = []
        for env in self.comparison.envs:
            for cell in self.comparison.on(env):
                runs = [one.run for one in cell.counted]
                seconds = [run.last("wall_s") or 0.0 for run in runs]
                speeds = [run.step / second for run, second in zip(runs, seconds, strict=True) if second > 0]
                peak = max((run.most("sys/rss_mb") or 0.0 for run in runs), default=0.0)
                gpu = max((run.most("sys/gpu_mb") or 0.0 for run in runs), default=0.0)
                hosts = ", ".join(sorted({run.host for run in runs if run.host})) or "?"
                rows.append([env, cell.method, clock(float(np.median(seconds))), clock(max(seconds))])
                rows[-1] += [number(float(np.median(speeds))) if speeds else "", memory(peak) if peak else ""]
                rows[-1] += [memory(gpu) if gpu else "", hosts]
        header = ["environment", "method", "time, median", "longest", "steps/s", "memory", "GPU", "host"]
        if not any(row[6] for row in rows):
            header.pop(6)
            rows = [row[:6] + row[7:] for row in rows]
        return Table("cost", "Time and memory", header, rows, range(2, 6), "Memory: the most that any run held.")

    def _configs(self) -> Table:
        rows = [
            [cell.method, cell.env, key, ", ".join(values)]
            for name in self.methods
            for cell in self.comparison.of(name)
            for key, values in differences([one.run for one in cell.counted])
        ]
        header, note = (
            ("method", "environment", "key", "values"),
            "Seeds and folders left out. by=KEY tells them apart.",
        )
        return Table("configs", "Configs that differ among runs that were put together", header, rows, (), note)

    def _runs(self) -> Table:
        rows = []
        for run in self.runs:
            value = run.last(self.score)
            aside = [self.comparison.aside[run.path]] if run.path in self.comparison.aside else []
            name, reason = self.comparison.names.get(run.path, method(run, self.by)), "; ".join([*aside, *run.faults])
            rows.append([name, run.env, str(run.seed), run.state, f"{run.step:,} of {run.total_steps:,}"])
            rows[-1] += ["" if value is None else number(value), str(run.path), reason]
        header = ("method", "environment", "seed", "state", "steps", "last score", "folder", "remarks")
        return Table("runs", "Every run", header, rows, (2, 4, 5))

    def _curves(self) -> Table:
        raw = [
            [cell.env, cell.method, len(cell.counted), int(step), *map(float, figures)]
            for cell in self.comparison.cells.values()
            for step, *figures in zip(cell.grid, cell.curves.mean(0), cell.centre, *cell.band, strict=True)
        ]
        header = ("env", "method", "runs", "step", "mean", "iqm", "iqm_low", "iqm_high")
        return Table("curves", "Learning curves", header, [], (), "", raw)
