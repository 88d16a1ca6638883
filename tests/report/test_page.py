"""The written report: one small, complete and valid file without dependencies, and separate figures and tables."""

import base64
import csv
import hashlib
import html
import json
import math
import re
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import make_run
from sound_html import Sound

from rlrun.cli.report import _remarks, build
from rlrun.media import Histogram, Image
from rlrun.report import png
from rlrun.report.compare import Cell, Comparison, Series
from rlrun.report.figures import COLOURS, MARKERS, Axis, Panel, Picture, axis, draw, short
from rlrun.report.media import stored_pictures
from rlrun.report.names import shortened
from rlrun.report.runs import StoredRun, read
from rlrun.report.statistics import interval, iqm
from rlrun.report.svg import SHAPES, svg
from rlrun.report.tables import ReportTable, conditions, mixtures
from rlrun.telemetry import media


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


def test_the_page_says_how_many_runs_are_in_no_statistic(written: tuple[Path, str]) -> None:
    _, text = written
    assert "1 of 17 runs are not part of any statistic" in text


def test_the_page_is_sound_and_needs_no_network(written: tuple[Path, str]) -> None:
    folder, text = written
    page = Sound(text)
    assert max(page.ids.values()) == 1
    assert all(load.startswith(("data:", "#")) for load in page.loads), "nothing is fetched"
    assert not re.search(r"<script [^>]*src|@import|url\(|eval\(|innerHTML| style=", text)
    inner = [link for link in page.links if not link.startswith("http")]
    assert all(link[1:] in page.ids if link[0] == "#" else (folder / link).is_file() for link in inner)
    used = set(re.findall(r'<use href="#([\w-]+)', text))
    assert used and used <= page.ids.keys(), "markers of the pictures are found"
    assert "<b>&" not in text and "&lt;b&gt;&amp;" in text
    assert len(text) < 2_000_000


def test_policy_lets_only_the_pages_own_style_and_script_act(written: tuple[Path, str]) -> None:
    text = written[1]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    allowed = dict(part.split(" ", 1) for part in html.unescape(policy).split("; "))
    assert allowed["default-src"] == "'none'"
    for kind, name in (("style", "style-src"), ("script", "script-src")):
        (inside,) = re.findall(f"<{kind}>(.*?)</{kind}>", text, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert allowed[name] == f"'sha256-{digest}'"


def test_colours_are_the_pages_own_in_light_and_dark(written: tuple[Path, str]) -> None:
    style, _, body = written[1].partition("</style>")
    assert not re.search(r"#[0-9a-f]{6}\b", body), "pictures leave colours to the style"
    light, _, dark = style.partition("prefers-color-scheme: dark")
    names = set(re.findall(r"var\((--\w+)\)", style)) - {"--face"}
    assert names and all(f"{name}: #" in light and f"{name}: #" in dark for name in names)
    assert all(f"--m{place}: {colour}" in light for place, colour in enumerate(COLOURS)), "as in the PNG files"


def test_readings_are_the_curves_and_cannot_end_their_element(written: tuple[Path, str]) -> None:
    text = written[1]
    (data,) = re.findall(r'<script type="application/json" id="readings">(.*?)</script>', text, flags=re.S)
    assert not set("<>&'") & set(data)
    found = json.loads(data)
    assert found["methods"] == ["algo0", "algo1"]
    assert [panel["label"] for panel in found["panels"]] == ["environment steps"] * 4 + ["normalised score x"]
    place, steps, centre, low, high = found["panels"][1]["curves"][1]
    curve = [row for row in table(written[0], "curves") if (row["env"], row["method"]) == ("Env1-v0", "algo1")]
    assert (place, steps) == (1, [int(row["step"]) for row in curve])
    for values, key in ((centre, "iqm"), (low, "iqm_low"), (high, "iqm_high")):
        assert values == pytest.approx([float(row[key]) for row in curve], rel=1e-5)
    assert text.count("data-reading=") == 5
    _, steps, centre, low, _ = found["panels"][2]["curves"][0]
    assert steps == [*range(9, 100, 10)] and len(centre) == 10 and {*low} == {None}, "training return, no interval"


def test_each_method_can_be_hidden(written: tuple[Path, str]) -> None:
    style, _, body = written[1].partition("</style>")
    assert re.findall(r'<input type="checkbox" id="(\w+)" checked>', body) == ["m0", "m1"]
    for place in range(2):
        assert f"body:has(#m{place}:not(:checked)) .methods .m{place} {{ display: none }}" in style
        kinds = set(re.findall(rf'class="(\w+) (?:c{place} )?m{place}"', body))
        assert kinds >= {"band", "single", "mean", "line", "point", "bar", "runs", "name"}
    looks = re.findall(r'<figure class="([^"]*)">', body)
    assert looks == ["methods table", "methods", "methods", "methods table", "methods", "table"], "not pairs of methods"
    assert re.search(r"<title>algo1: [\d.]+ \([\d.]+ to [\d.]+\)</title>", body)


def contrast(one: str, other: str) -> float:
    """Returns the contrast ratio of two colours, #rrggbb, by WCAG 2."""

    def light(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted([light(one), light(other)])
    return (high + 0.05) / (low + 0.05)


def test_page_text_and_lines_have_enough_contrast(written: tuple[Path, str]) -> None:
    for part in written[1].partition("</style>")[0].split("prefers-color-scheme: dark"):
        colours = dict(re.findall(r"--(\w+): (#\w{6})", part))
        assert all(contrast(colours[name], colours["paper"]) >= 4.5 for name in ("ink", "dim", "accent"))
        assert all(contrast(colours[f"m{index}"], colours["paper"]) >= 3 for index in range(len(COLOURS)))


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open() as file:
        return [*csv.DictReader(file)]


TEXT = {"env", "method", "state", "remarks", "folder", "host", "x", "y", "environment", "key", "values"}


def test_csv_files_hold_numbers_as_numbers(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for algo, seed in product(("ppo", "sac"), range(5)):
        scores = {100: -10_000.25, 2000: -27.74}
        make_run(tmp_path / "runs" / f"{algo}{seed}", scores, algo=algo, seed=seed, total=10_000)
    build([str(tmp_path / "runs")], {}, "").write(tmp_path / "out")
    for path in (tmp_path / "out").glob("*.csv"):
        for row in table(tmp_path / "out", path.stem):
            assert all(math.isfinite(float(text)) for key, text in row.items() if key not in TEXT and text)
        frame = pandas.read_csv(path)
        assert frame.empty or {column for column in frame if frame[column].dtype == object} <= TEXT
    first = table(tmp_path / "out", "runs")[0]
    assert (first["step"], first["total_steps"], first["last_score"]) == ("2000", "10000", "-27.74")
    assert [row["ppo"] for row in table(tmp_path / "out", "steps")] == ["-10000.25"] * 3 + ["-27.74"]
    cost = table(tmp_path / "out", "cost")[0]
    wanted = {"seconds_longest": "200.0", "steps_per_s": "10.0", "rss_mb": "300.0", "gpu_mb": ""}
    assert {key: cost[key] for key in wanted} == wanted


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
    pictures = {"overview", "curves", "training", "final", "profile", "improvement"}
    assert {path.stem for path in folder.glob("*.png")} == pictures


def test_every_run_has_its_arguments_of_the_environment_and_its_success_rate(tmp_path: Path) -> None:
    for seed, env in enumerate(("./envs/grip.py:Grip", "CartPole-v1")):
        path = make_run(tmp_path / "runs" / f"{seed}", {100: 1.0}, env=env, seed=seed)
        if seed == 0:
            config = (path / "config.yaml").read_text()
            (path / "config.yaml").write_text(config.replace("kwargs: {}", "kwargs: {radius: 0.2}"))
            with (path / "metrics.jsonl").open("a") as file:
                file.write('{"step": 101, "wall_s": 11.0, "eval/success_rate": 0.75}\n')
    build([str(tmp_path / "runs")], {}, "").write(tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text()
    assert ">Grip {radius: 0.2}<" in text and "success rate" in text
    rows = {row["env"]: row["success_rate"] for row in table(tmp_path / "out", "runs")}
    assert rows == {"./envs/grip.py:Grip": "0.75", "CartPole-v1": ""}


def test_one_run_alone_and_none_that_was_evaluated(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "run", {100: 1.0})
    build([str(tmp_path / "a")], {}, "").write(tmp_path / "one")
    text = (tmp_path / "one" / "index.html").read_text()
    Sound(text)
    assert "too few runs" in text and ">nan<" not in text and 'class="mean' not in text
    assert ">steps/s</th>" in text and ">GPU</th>" not in text, "a column without values"
    assert {path.stem for path in (tmp_path / "one").glob("*.png")} == {"curves", "training", "final"}
    build([str(tmp_path / "a")], {"score": "train/return_mean"}, "").write(tmp_path / "two")
    assert {path.stem for path in (tmp_path / "two").glob("*.png")} == {"curves", "final"}
    make_run(tmp_path / "b" / "run", {}, status=None)
    build([str(tmp_path / "b")], {}, "").write(tmp_path / "none")
    text = (tmp_path / "none" / "index.html").read_text()
    Sound(text)
    assert "Nothing to compare yet" in text and "no rows yet" in text


def test_page_escapes_hostile_names_and_numbers(tmp_path: Path) -> None:
    for seed, value in enumerate([1.0, -1e99, 1e99]):
        make_run(
            tmp_path / "runs" / f"{seed}", {100: value}, algo="$\\frac{$</script><i>", env="]]><x/>$\u65b9", seed=seed
        )
    with (tmp_path / "runs" / "0" / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": 1{"0" * 400}, "eval/return_mean": 1e300}}\n{{"step": -5}}\n{{"step": true}}\n')
    made = build([str(tmp_path / "runs")], {}, "")
    assert made.runs[0].rows[-1]["step"] == 100
    made.write(tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text()
    Sound(text)
    assert "<i>" not in text and "<x/>" not in text and text.count("</script>") == 2


def png_of(*size: int) -> bytes:
    return Image(np.zeros(size[::-1], np.uint8)).content()


def test_page_embeds_the_latest_stored_picture_of_each_name(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {100: 1.0})
    for step, width in ((1000, 8), (20_000, 32)):
        media.store(run, step, "<i>latents", Image(np.zeros((16, width), np.uint8)))
    media.store(run, 5, "b", Image(np.zeros((400, 500), np.uint8)))
    media.store(run, 5, "counts", Histogram(np.zeros(3)))
    build([str(run)], {}, "").write(tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text()
    page = Sound(text)
    assert "<i>latents" not in text and "&lt;i&gt;latents" in text and "step 20,000 of" in text
    loads = [load for load in page.loads if load.startswith("data:image/png;base64,")]
    assert [base64.b64decode(load.partition(",")[2]) for load in loads] == [png_of(32, 16), png_of(500, 400)]
    assert 'width="320" height="160"' in text and 'width="500" height="400"' in text and "left out" not in text


def test_stored_files_that_are_no_small_png_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = png_of(4, 4)
    run = make_run(tmp_path / "run", {100: 1.0})
    (run / "media").mkdir()
    wide = content[:16] + (4097).to_bytes(4, "big") + content[20:]
    flat = content[:20] + bytes(4) + content[24:]
    files = {
        "good": content,
        "script": b"<svg onload=f()>" + content[16:],
        "wide": wide,
        "flat": flat,
        "cut": content[:20],
    }
    for name, file in (files | {"large": content + bytes(1 << 20)}).items():
        (run / "media" / f"000000000001-{name}.png").write_bytes(file)
    runs, _ = read([run])
    found, left_out = stored_pictures(runs)
    assert [(one.name, one.run, one.step) for one in found] == [("good", str(run), 1)] and left_out == 5
    monkeypatch.setattr("rlrun.report.media.PAGE_BYTES", 2 * len(content) - 1)
    assert [len(one) for one in stored_pictures(runs + runs)[:1]] == [1] and stored_pictures(runs + runs)[1] == 11
    build([str(run)], {}, "").write(tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text()
    assert "Pictures left out: 5." in text and "onload" not in text


def test_page_without_stored_pictures_has_no_section_for_them(written: tuple[Path, str]) -> None:
    assert 'id="stored"' not in written[1] and 'href="#stored"' not in written[1]


def test_control_characters_and_text_directions_are_replaced(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "\x1b[31m\udcff", {100: 1.0}, algo="a\x07b", env="\u202egnp")
    build([str(tmp_path / "runs")], {}, "").write(tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text()
    assert not [letter for letter in text if letter != "\n" and not letter.isprintable()]
    assert "\\u0007" not in text, "in the readings"
    for shown in ("a\ufffdb", "\ufffdgnp", "\ufffd[31m\ufffd"):
        assert shown in text and shown in (tmp_path / "out" / "runs.csv").read_text()


def test_one_evaluation_is_a_point_in_the_learning_curves(tmp_path: Path) -> None:
    for seed in range(4):
        make_run(tmp_path / "runs" / f"{seed}", {100: 10.0 + seed}, seed=seed)
    made = build([str(tmp_path / "runs")], {}, "")
    (panel,) = next(picture for picture in draw(made.comparison, made.score) if picture.name == "curves").panels
    marks = {mark.kind: mark for mark in panel.marks}
    assert (marks["point"].x, marks["point"].y) == ([100], [11.5])
    assert marks["bar"].x.tolist() == [100, 100] and marks["bar"].y.tolist() == [10, 13]
    text = svg(panel, "Learning curves", lone=True)
    assert '<g class="point c0 m0"><use href="#k0" x="50%" y="50%"/></g>' in text
    assert re.search(r'<path class="runs c0 m0" d="M2000 \d+h0"', text) and panel.x.low < 100 < panel.x.high


def test_differing_configs_are_named_at_the_top(tmp_path: Path) -> None:
    for seed in range(5):
        make_run(tmp_path / "runs" / f"{seed}", {100: 1.0 + seed}, seed=seed, gamma=0.9 + seed / 100)
    make_run(tmp_path / "runs" / "other", {100: 1.0}, algo="sac")
    made = build([str(tmp_path / "runs")], {}, "")
    line = "ppo on CartPole-v1: algo.gamma 0.9, 0.91, 0.92, ... (5 values) (by=algo.gamma separates them)"
    assert mixtures(made.comparison) == [line]
    made.write(tmp_path / "out")
    top, _, _ = (tmp_path / "out" / "index.html").read_text().partition("<nav")
    assert f"<li>{line}</li>" in top
    gammas = ", ".join(str(0.9 + seed / 100) for seed in range(5))
    expected = {"method": "ppo", "environment": "CartPole-v1", "key": "algo.gamma", "values": gammas}
    assert table(tmp_path / "out", "configs") == [expected]
    apart = build([str(tmp_path / "runs")], {"by": "algo.gamma"}, "")
    assert mixtures(apart.comparison) == []


def test_settings_in_which_methods_differ_are_listed(tmp_path: Path) -> None:
    for seed in range(2):
        make_run(tmp_path / "runs" / f"ppo{seed}", {100: 1.0}, algo="ppo", seed=seed, gamma=0.9, clip_range=0.2)
    make_run(tmp_path / "runs" / "spo", {100: 1.0}, algo="spo", total=200, gamma=0.99)
    made = build([str(tmp_path / "runs")], {}, "")
    assert conditions(made.comparison) == ["CartPole-v1: seed, trainer.total_steps"]
    assert "methods differ on CartPole-v1: seed, trainer.total_steps (unequal.csv)" in [*_remarks(made)]
    made.write(tmp_path / "out")
    assert table(tmp_path / "out", "unequal") == [
        {"environment": "CartPole-v1", "key": "seed", "ppo": "0, 1", "spo": "0"},
        {"environment": "CartPole-v1", "key": "trainer.total_steps", "ppo": "100", "spo": "200"},
        {"environment": "CartPole-v1", "key": "algo.gamma", "ppo": "0.9", "spo": "0.99"},
    ]
    text = (tmp_path / "out" / "index.html").read_text()
    assert "<li>CartPole-v1: seed, trainer.total_steps</li>" in text.partition("<nav")[0]
    Sound(text)


def test_presets_are_a_condition_only_if_a_method_has_none() -> None:
    for preset, expected in (("spo-CartPole", []), (None, ["CartPole-v1: preset"])):
        cells = []
        for algo, value in (("ppo", "ppo-CartPole"), ("spo", preset)):
            config = {"preset": value, "algo": {"name": algo}, "env": {"id": "CartPole-v1"}}
            run = StoredRun(Path(algo), config, {}, {}, {}, [], [])
            series = [Series(run, np.array([1.0]), np.array([1.0]))]
            cells.append(Cell(algo, "CartPole-v1", series, series, {}))
        assert conditions(Comparison(cells, {})) == expected


def test_missing_combinations_are_a_note_of_one_sentence(tmp_path: Path) -> None:
    for place in range(3):
        make_run(tmp_path / "runs" / f"{place}", {100: 1.0}, algo=f"algo{place}", env=f"Env{place}")
    build([str(tmp_path / "runs")], {}, "").write(tmp_path / "out")
    (note,) = re.findall(r'<p class="note">(Methods are[^<]*)</p>', (tmp_path / "out" / "index.html").read_text())
    assert "6 of 9 combinations" in note and len(note) < 150


def test_many_runs_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(png, "save", lambda *_: None)
    build([str(runs(tmp_path / "runs", 6, 12, 2, 40))], {}, "").write(tmp_path / "out")
    assert (tmp_path / "out" / "index.html").stat().st_size < 2_000_000


@pytest.mark.slow
def test_five_algorithms_three_environments_five_seeds_in_ten_seconds(tmp_path: Path) -> None:
    places = runs(tmp_path / "runs", 5, 3, 5, 100)
    began = time.process_time()  # of this process, so that other processes have no influence
    build([str(places)], {}, "").write(tmp_path / "out")
    assert time.process_time() - began <= 10


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_500_000, "1.5M"), (20_000, "20k"), (0.25, "0.25"), (-300, "\N{MINUS SIGN}300"), (0, "0"), (2e9, "2G"),
        (999_999, "1M"), (9.9e99, "9.9e99"), (1e-310, "1e\N{MINUS SIGN}310"),
    ],
)  # fmt: skip
def test_ticks_are_short(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0, 100], ["0", "25", "50", "75", "100"]),
        ([1000.0, 1000.3], ["1k", "1.0001k", "1.0002k", "1.0003k"]),  # as many digits as are needed
        ([7.0, 7.0], ["6.5", "7", "7.5"]),
        ([0, 0], ["\N{MINUS SIGN}0.5", "\N{MINUS SIGN}0.25", "0", "0.25", "0.5"]),
        ([-1e99, 1e99], ["\N{MINUS SIGN}1e99", "\N{MINUS SIGN}5e98", "0", "5e98", "1e99"]),
        ([1e-320, 2e-320], ["\N{MINUS SIGN}0.5", "\N{MINUS SIGN}0.25", "0", "0.25", "0.5"]),
    ],
)
def test_axes_have_round_ticks_that_can_be_told_apart(values: list[float], labels: list[str]) -> None:
    found = axis(values)
    assert list(found.labels) == labels
    assert found.low < min(values) and max(values) < found.high
    assert all(found.low <= tick <= found.high for tick in found.ticks)


def test_figure_has_three_panels_in_a_row_and_labels_below_the_last() -> None:
    panel = Panel("", [], axis([0, 1]), Axis(0, 1, (0.5,), ("half",)))
    figure = png._figure(Picture("p", "", [panel] * 4, "x", "y"), ["ppo", "a" * 60])
    assert [one.get_visible() for one in figure.axes] == [True] * 4 + [False] * 2
    assert [one.get_xlabel() for one in figure.axes] == ["", "x", "x", "x", "", ""]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["half"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ppo", shortened("a" * 60)]
    assert len(png._figure(Picture("p", "", [panel], "x"), ["ppo"]).axes) == 1


def test_long_names_are_cut_in_the_middle() -> None:
    assert shortened("a" * 20 + "b" * 20) == "a" * 20 + "b" * 20
    assert shortened("a" * 30 + "b" * 30) == "a" * 26 + "…" + "b" * 13


def test_tall_pictures_are_drawn_with_fewer_pixels(tmp_path: Path) -> None:
    panel = Panel("", [], axis([0, 1]), Axis(2000, 0, (), ()), rows=2000)
    png.save(Picture("tall", "", [panel], "x"), ["ppo"], tmp_path)
    with (tmp_path / "tall.png").open("rb") as file:
        height = int.from_bytes(file.read(24)[20:])
    assert 29_900 <= height <= 30_000


def test_every_marker_has_a_shape() -> None:
    assert {*SHAPES} == {*MARKERS} and len({*SHAPES.values()}) == len(MARKERS)


def test_cells_of_csv_files_that_begin_like_a_formula_are_text(tmp_path: Path) -> None:
    ReportTable("runs", "Runs", ("name", "score"), [["=1+1", -2.0], ["-", 1.0], ["@x", 0.0]]).save(tmp_path)
    with (tmp_path / "runs.csv").open() as file:
        assert [*csv.reader(file)][1:] == [["'=1+1", "-2.0"], ["-", "1.0"], ["'@x", "0.0"]]
