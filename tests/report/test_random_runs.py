"""A report is written for any set of runs, and its statistics are valid."""

import csv
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_runs import random_runs
from sound_html import Sound

from rlrun.cli.report import build
from rlrun.report import png
from rlrun.report.compare import Cell, Comparison
from rlrun.report.page import Report
from rlrun.report.tables import as_text

FILES = {"index.html", "runs.csv"}
WIDE = [(30, 1, 2), (2, 40, 1), (9, 9, 1)]  # methods, environments and seeds of every 15th set


def made(folder: Path, seed: int) -> Report:
    shape = () if seed % 15 else WIDE[seed // 15 % 3]
    return build([str(random_runs(folder / "runs", np.random.default_rng(seed), shape))], {}, "rlrun report")


def check_cell(cell: Cell) -> None:
    assert cell.counted and all(one.steps[0] <= cell.horizon <= one.steps[-1] for one in cell.counted)
    assert (np.diff(cell.grid) > 0).all() and cell.grid[-1] == cell.horizon
    assert len(cell.grid) <= cell.points
    for values in (cell.curves, cell.centre, cell.final, cell.best):
        assert np.isfinite(values).all()
    assert (cell.best >= cell.final).all()
    low, high = cell.band
    if len(cell.counted) < 3:
        assert np.isnan(low).all() and np.isnan(cell.final_interval).all()
    else:
        assert (low <= high).all() and cell.final_interval[0] <= cell.final_interval[1]


def check_statistics(report: Report) -> None:
    """Checks that every run counts or is listed with a reason, and that all numbers are finite and in range."""
    one: Comparison = report.comparison
    counted = [series.run.path for cell in one for series in cell.counted]
    assert sorted([*counted, *one.uncounted]) == sorted(run.path for run in report.runs)
    for cell in one:
        check_cell(cell)
    for name in one.methods:
        for what in ("final", "best"):
            assert all((scores >= 0).all() and (scores <= 1).all() for scores in one.strata(name, what))
        values, low, high = one.profiles[name]
        assert (np.diff(values) <= 0).all() and values[-1] == 0
        assert np.isnan(low).all() or (low <= high).all()
    for _, _, chance, ends in one.pairs:
        assert 0.5 <= chance <= 1
        assert np.isnan(ends).all() or 0 <= ends[0] <= ends[1] <= 1


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def check_page(report: Report, folder: Path) -> None:
    """Checks that all files exist, every method is in the tables, and the page shows no NaN."""
    comparison = report.comparison
    text = report.write(folder).read_text(encoding="utf-8")
    page = Sound(text)
    assert max(page.ids.values()) == 1
    files = [link for link in page.links if not link.startswith(("http", "#"))]
    assert {*files, *FILES} <= {path.name for path in folder.iterdir()}
    body = re.sub(r"<style>.*?</style>|<script.*?</script>", "", text, flags=re.S)
    assert not re.search(r"(?<![\w-])[+-]?(nan|inf|infinity)(?![\w-])", body, flags=re.I)
    assert all(letter.isprintable() for letter in body.replace("\n", ""))
    readings = json.loads(re.findall(r'id="readings">(.*?)</script>', text, flags=re.S)[0], parse_constant=refuse)
    scores = (folder / "scores.csv").read_text(encoding="utf-8") if comparison.methods else "env,method\n"
    rows = {(row["env"], row["method"]) for row in csv.DictReader(scores.splitlines())}
    assert rows == {(as_text(cell.env), as_text(cell.method)) for cell in comparison}
    assert len(readings["methods"]) == len(comparison.methods)
    for name in readings["methods"]:
        assert html.escape(name) in body.replace("&#34;", "&quot;").replace("&#39;", "&#x27;")


def no_png(picture: Any, methods: Any, folder: Path) -> None:
    """Replaces the drawing of figures, which takes nine tenths of the time."""
    (folder / f"{picture.name}.png").touch()


def check_pages(folder: Path, seeds: range, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    save = png.save
    for seed in seeds:
        monkeypatch.setattr(png, "save", no_png if (seed + 1) % every else save)
        report = made(folder / f"{seed}", seed)
        check_statistics(report)
        check_page(report, folder / f"{seed}" / "report")


def test_reports_of_9_random_sets_of_runs_are_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_pages(tmp_path, range(0, 45, 5), monkeypatch, 10)  # each of WIDE is among them


@pytest.mark.full
def test_reports_of_50_random_sets_of_runs_are_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_pages(tmp_path, range(50), monkeypatch, 10)


@pytest.mark.slow
def test_reports_of_100_more_random_sets_are_sound_with_all_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_pages(tmp_path, range(50, 150), monkeypatch, 1)


@pytest.mark.slow
def test_statistics_of_1000_random_sets_are_sound(tmp_path: Path) -> None:
    for seed in range(1000, 2000):
        check_statistics(made(tmp_path / f"{seed}", seed))
