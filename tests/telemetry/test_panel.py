"""The panel fits every width, with any subset of the values."""

import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from rlrun.telemetry.formatting import clock, memory, number, size
from rlrun.telemetry.panel import PLAIN, UNICODE, aligned, panel
from rlrun.telemetry.view import View, warmup_steps

ROW = {
    **{"step": 50_000, "wall_s": 100.0, "train/return_mean": 4116.0, "train/episodes": 50},
    **{"eval/return_mean": 4281.0, "eval/return_std": 59.6, "loss/critic": 2.5, "loss/actor": -86.4},
    **{"time/steps_per_s": 500.0, "time/updates_per_s": 499.0, "sys/rss_mb": 812.0, "sys/gpu_mb": 1433.0},
    **{"time/share_env": 0.25, "time/share_act": 0.05, "time/share_sample": 0.0, "time/share_update": 0.5},
}


def draw(rows, width, glyphs=UNICODE):
    view = View("sac · HalfCheetah", Path("runs/sac-HalfCheetah/20260801-120000-s0-a1b2"), 100_000, rows)
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(panel(view, width, glyphs, colours=glyphs is UNICODE))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [*range(60, 201, 7), 200])
@pytest.mark.parametrize("glyphs", [UNICODE, PLAIN])
def test_panel_is_a_closed_box_with_missing_metrics(width, glyphs):
    for missing in ["", *ROW]:
        row = {key: value for key, value in ROW.items() if key != missing}
        lines = draw([{"step": 1} | row], width, glyphs)
        assert {len(line) for line in lines} == {min(width, 100)}
        assert all(line[0] == line[-1] for line in lines[1:-1])


@pytest.mark.parametrize("width", range(1, 60))
def test_panel_fits_any_width(width):
    draw([], width)
    labels = [line[3:7] for line in draw([ROW], width, PLAIN)[5:-2]]
    assert width < 28 or labels == ["trai", "eval", "loss", "    ", "spee", "time"]


def test_panel_shows_the_metrics():
    text = "\n".join(draw([ROW | {"step": 10, "eval/return_mean": 4337.0}, ROW], 90))
    for part in (
        *("50.0%", "50,000 of 100,000 steps", "elapsed 1:40", "4,116", "50 episodes", "4,281 ± 60", "best 4,337 at 10"),
        *("critic 2.500", "actor -86.40", "500.0 steps/s", "499.0 updates/s", "memory 812 MB", "gpu 1.4 GB"),
        *("env 25%", "act 5%", "update 50%", "sac · HalfCheetah", "runs/sac-HalfCheetah/20260801-120000-s0-a1b2"),
    ):
        assert part in text


def test_panel_shows_success_and_metrics_of_the_user():
    own = {"train/success_rate": 0.75, "custom/lifted": 3.0}
    (line,) = (line for line in draw([ROW | own], 90) if "goal" in line)
    assert line.strip("│ ").split() == ["goal", "success", "0.750", "lifted", "3.000"]


def test_panel_time_bar_is_proportional_to_shares():
    line = next(line for line in draw([ROW], 100, PLAIN) if "time" in line)
    bar = line.split()[2]
    assert set(bar) == set("eau") and bar == "".join(sorted(bar, key="eau".index))
    assert bar.count("u") == pytest.approx(2 * bar.count("e"), abs=1)


def test_panel_aligns_sparklines_and_the_ends_of_lines():
    lines = draw([ROW | {"step": 10, "eval/return_mean": 4337.0, "train/return_mean": 1.0}, ROW], 90)
    assert lines[3].startswith("│  50,000 of") and lines[3].endswith("left -:--  │")
    train, evaluation = lines[5:7]
    assert train.index("▁▇") == evaluation.index("▇▁") == 26
    assert (train[-11:-3], evaluation[-11:-3]) == ("episodes", "37 at 10")
    train, evaluation = draw([ROW | {"step": step} for step in range(40)], 80)[5:7]
    assert train.count("▄") == evaluation.count("▄") == 34, "the newest that fit"
    assert train.endswith("▄      50 episodes  │")


def test_panel_never_cuts_a_loss():
    losses = {f"loss/name{i}": 1234.0 for i in range(12)}
    (line,) = (line for line in draw([ROW | losses], 80) if "loss" in line)
    words = line.strip("│ ").split()[1:]
    assert len(words) % 2 == 0 and set(words[5::2]) == {"1,234"}


def test_table_of_a_panel_has_no_empty_columns_and_styles_cells_by_their_text():
    table = [["run", "state", "note"], ["a", "failed", ""], ["bc", "done", ""]]
    header, first, second = aligned(table, {"failed": "red"})
    assert [line.plain for line in (header, first, second)] == ["run  state   ", "a    failed  ", "bc   done    "]
    assert [span.style for span in (*header.spans, *first.spans, *second.spans)] == ["dim", "dim", "red"]


def test_speed_and_time_left_follow_the_last_minute(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("rlrun.telemetry.view.time.monotonic", lambda: now[0])
    view = View("", Path(), 100_000, [{"step": 1000, "wall_s": 60.0}])
    assert view.left_s(view.speed) is None
    for _ in range(10):  # fast at first
        now[0] += 1
        view.move(view.step + 1000)
    assert view.left_s(view.speed) == pytest.approx(89) and view.elapsed_s == pytest.approx(70)
    for _ in range(100):
        now[0] += 1
        view.move(view.step + 10)
    assert view.speed == pytest.approx(10)
    assert view.left_s(0.5) == 2 * (100_000 - view.step)


def test_time_left_is_unknown_in_the_warm_up_and_does_not_count_its_speed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("rlrun.telemetry.view.time.monotonic", lambda: now[0])
    view = View("", Path(), 100_000, [], warmup_steps=5000)
    for step in (1000, 4000, 5500):  # fast
        now[0] += 1
        view.move(step)
        assert view.left_s(view.speed) is None
    for _ in range(10):
        now[0] += 1
        view.move(view.step + 10)
        assert view.left_s(view.speed) == pytest.approx((100_000 - view.step) / 10)


@pytest.mark.parametrize(
    ("loop", "steps"),
    [
        ({"rollout_steps": 8}, 0),
        ({"warmup_steps": 300, "start_update": None}, 300),
        ({"warmup_steps": 300, "start_update": 700}, 700),
        ({"warmup_steps": None}, 900),
    ],
)
def test_warm_up_of_a_config(loop, steps):
    assert warmup_steps({"algo": {"loop": loop, "buffer": {"capacity": 900}}}) == steps
    assert warmup_steps({"algo": {}}) == 0


def test_view_of_a_number_of_updates_estimates_its_last_step():
    view = View("", Path(), 100_000, [], total_updates=40)
    assert view.total_steps == 100_000, "until a row has updates"
    view.add({"step": 1000, "wall_s": 60.0, "train/updates": 10})
    view.move(1000)
    assert (view.total_steps, view.done) == (4000, 0.25)
    view.add({"step": 4200, "wall_s": 60.0, "train/updates": 42})
    assert view.total_steps == 4200
    view.add({"step": 9000, "wall_s": 60.0, "train/updates": 1})
    assert view.total_steps == 100_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.000"),
        (-0.5, "-0.500"),
        (12.345, "12.35"),
        (123.45, "123.5"),
        (-54321.9, "-54,322"),
        (1e-5, "1.00e-05"),
        (5e-4, "0.001"),
        (9.9999, "10.000"),
        (10, "10.00"),
        (100, "100.0"),
        (1000, "1,000"),
        (99_999_999, "99,999,999"),
        (1e8, "1.00e+08"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(12.345, 1, "12"), (1.5, 1, "2"), (0.04, 2, "4e-02"), (12.34567, 6, "12.3457"), (1e-5, 8, "1.000000e-05")],
)
def test_number_of_digits(value, digits, text):
    assert number(value, digits=digits) == text


def test_clock():
    assert [clock(s) for s in (None, 5.4, 3599.6, 90061)] == ["-:--", "0:05", "1:00:00", "1d 01:01:01"]
    assert [clock(s) for s in (-0.1, math.nan, 1e10, 0)] == ["-:--", "-:--", "-:--", "0:00"]


def test_sizes():
    assert [memory(megabytes) for megabytes in (999, 1000, 1536)] == ["999 MB", "1.0 GB", "1.5 GB"]
    sizes = [size(count) for count in (1023, 1536, 1024**2, 1.5 * 1024**3)]
    assert sizes == ["1023 B", "1.5 kB", "1.0 MB", "1.5 GB"]
