"""The written report: one file that needs nothing else, small, complete and sound; pictures and tables beside it."""

import csv
import json
import re
import shutil
import subprocess
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import make_run

from rlrun.cli.report import build
from rlrun.report.figures import COLOURS, _themed, short
from rlrun.report.statistics import interval, iqm

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Sound(HTMLParser):
    """Raises where tags do not nest; collects ids, links and table sizes."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        self.ids.update([given["id"]] if "id" in given else [])
        self.links += [given["href"]] if tag == "a" else []
        self.loads += [given[key] for key in ("src", "srcset", "data", "xlink:href") if key in given]
        self.loads += [given["href"]] if tag == "link" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def runs(folder: Path, algos: int, envs: int, seeds: int, evaluations: int = 10) -> Path:
    rng = np.random.default_rng(0)
    for algo in range(algos):
        for env in range(envs):
            for seed in range(seeds):
                rise = (algo + 1) * (env + 1) * (1 + 0.3 * rng.normal())
                scores = {10 * k: rise * k / evaluations + rng.normal() for k in range(1, evaluations + 1)}
                given = {"algo": f"algo{algo}", "env": f"Env{env}-v0", "seed": seed, "total": 10 * evaluations}
                make_run(folder / f"{algo}-{env}-{seed}", scores, **given)
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: Any) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("report")
    places = runs(folder / "runs", 2, 2, 4)
    make_run(places / "<b>&", {50: 1.0}, status="failed", algo="algo0", env="Env0-v0", seed=9)
    (places / "empty").mkdir()
    build([str(places)], {}, "rlrun report runs").write(folder / "out")
    return folder / "out", (folder / "out" / "index.html").read_text()


def test_the_page_is_sound_and_needs_no_network(written: tuple[Path, str]) -> None:
    folder, text = written
    page = Sound(text)
    assert max(page.ids.values()) == 1
    assert all(load.startswith(("data:", "#")) for load in page.loads), "nothing is fetched"
    assert not re.search(r"<script|@import|url\((?!#)", text)
    inner = [link for link in page.links if not link.startswith("http")]
    assert all(link[1:] in page.ids if link[0] == "#" else (folder / link).is_file() for link in inner)
    used = set(re.findall(r"(?:url\(|xlink:href=\")#([\w-]+)", text))
    assert used and used <= page.ids.keys(), "clips and markers of the pictures are found"
    assert "<b>&" not in text and "&lt;b&gt;&amp;" in text
    assert len(text) < 2_000_000


def test_colours_are_the_pages_own_in_light_and_dark(written: tuple[Path, str]) -> None:
    style, _, body = written[1].partition("</style>")
    assert not [colour for colour in COLOURS if colour in body]
    light, _, dark = style.partition("prefers-color-scheme: dark")
    names = set(re.findall(r"var\((--\w+)\)", body)) - {"--face"}
    assert names and all(f"{name}: #" in light and f"{name}: #" in dark for name in names)


def test_coordinates_are_rounded_and_labels_are_not() -> None:
    svg = (
        '<?xml?><svg width="9pt" height="9pt" viewBox="0 0 9.25 9"><path d="M 1.23456 -2.0000"/><text>0.25</text></svg>'
    )
    found = _themed(svg, "name", "Title")
    assert 'd="M 1.2 -2"' in found and "<text>0.25</text>" in found
    assert found.startswith('<svg role="img" aria-label="Title" class="picture"') and "width" not in found


def contrast(one: str, other: str) -> float:
    """WCAG 2's ratio of two colours, #rrggbb."""

    def light(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted([light(one), light(other)])
    return (high + 0.05) / (low + 0.05)


def test_text_and_lines_can_be_told_from_the_paper(written: tuple[Path, str]) -> None:
    for part in written[1].partition("</style>")[0].split("prefers-color-scheme: dark"):
        colours = dict(re.findall(r"--(\w+): (#\w{6})", part))
        assert all(contrast(colours[name], colours["paper"]) >= 4.5 for name in ("ink", "dim", "accent"))
        assert all(contrast(colours[f"m{index}"], colours["paper"]) >= 3 for index in range(len(COLOURS)))


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open() as file:
        return [*csv.DictReader(file)]


def test_tables_hold_the_numbers_of_the_runs(written: tuple[Path, str], tmp_path: Path) -> None:
    folder, text = written
    metrics = sorted((folder.parent / "runs").glob("1-1-*/metrics.jsonl"))
    final = [json.loads(path.read_text().splitlines()[-1])["eval/return_mean"] for path in metrics]
    row = next(row for row in table(folder, "scores") if (row["env"], row["method"]) == ("Env1-v0", "algo1"))
    low, high = interval([final])
    wanted = {"mean": np.mean(final), "iqm": iqm(final), "iqm_low": low, "iqm_high": high, "median": np.median(final)}
    assert [float(row[key]) for key in wanted] == pytest.approx([*map(float, wanted.values())], rel=1e-12)
    curve = [row for row in table(folder, "curves") if (row["env"], row["method"]) == ("Env1-v0", "algo1")]
    assert [int(row["step"]) for row in curve] == [*range(10, 101, 10)]
    assert float(curve[-1]["iqm"]) == pytest.approx(float(iqm(final)))
    assert len(table(folder, "runs")) == 17
    assert "resumable at 50 of 100 steps" in text and "an empty folder" in text
    pictures = {"overview", "curves", "final", "profile", "improvement"}
    assert {path.stem for path in folder.glob("*.png")} == pictures


def test_one_run_alone_and_none_that_was_evaluated(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "run", {100: 1.0})
    build([str(tmp_path / "a")], {}, "").write(tmp_path / "one")
    text = (tmp_path / "one" / "index.html").read_text()
    Sound(text)
    assert "one run" in text and ">nan<" not in text
    make_run(tmp_path / "b" / "run", {}, status=None)
    build([str(tmp_path / "b")], {}, "").write(tmp_path / "none")
    text = (tmp_path / "none" / "index.html").read_text()
    Sound(text)
    assert "Nothing to compare yet" in text and "no rows yet" in text


def test_hostile_names_and_numbers_do_no_harm(tmp_path: Path) -> None:
    for seed, value in enumerate([1.0, -1e99, 1e99]):
        make_run(tmp_path / "runs" / f"{seed}", {100: value}, algo="$\\frac{$<i>", env="]]><x/>$", seed=seed)
    with (tmp_path / "runs" / "0" / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": 1{"0" * 400}, "eval/return_mean": 1e300}}\n{{"step": -5}}\n{{"step": true}}\n')
    made = build([str(tmp_path / "runs")], {}, "")
    assert made.runs[0].rows[-1]["step"] == 100
    made.write(tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text()
    Sound(text)
    assert "<i>" not in text and "<x/>" not in text


def test_many_runs_stay_small(tmp_path: Path) -> None:
    build([str(runs(tmp_path / "runs", 6, 12, 2, 40))], {}, "").write(tmp_path / "out")
    assert (tmp_path / "out" / "index.html").stat().st_size < 2_000_000


@pytest.mark.slow
def test_a_browser_has_nothing_to_complain_about(written: tuple[Path, str]) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium")
    flags = ["--headless", "--no-sandbox", "--enable-logging=stderr", "--dump-dom"]
    page = (written[0] / "index.html").as_uri()
    done = subprocess.run([chromium, *flags, page], capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr and done.stdout.count('class="picture"') == 5


@pytest.mark.slow
def test_five_algorithms_three_environments_five_seeds_in_ten_seconds(tmp_path: Path) -> None:
    places = runs(tmp_path / "runs", 5, 3, 5, 100)
    began = time.process_time()  # of this process, for neighbours must not decide
    build([str(places)], {}, "").write(tmp_path / "out")
    assert time.process_time() - began <= 10


@pytest.mark.parametrize(
    ("value", "text"),
    [(1_500_000, "1.5M"), (20_000, "20k"), (0.25, "0.25"), (-300, "\N{MINUS SIGN}300"), (0, "0"), (2e9, "2G")],
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert short(value) == text
