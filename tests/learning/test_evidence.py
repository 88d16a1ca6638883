"""docs/learning.md is the table of the stored evaluations."""

import json
import re
from pathlib import Path

import pytest
from catalogue import APART, ELSEWHERE, PRESETS
from evidence import DOCS, SUMMARY, keep, main, page, summary, table
from made_runs import make_run
from test_thresholds import PROMISES

from rlrun.report.runs import StoredRun, read


def run(path: Path) -> StoredRun:
    return read([path])[0][0]


def test_the_page_in_docs_is_what_the_kept_runs_give() -> None:
    assert (DOCS / "learning.md").read_text() == page(DOCS / "learning", PROMISES, ELSEWHERE, APART)


def test_summary_in_the_package_is_what_the_kept_runs_give() -> None:
    assert SUMMARY.read_text() == summary(DOCS / "learning", ELSEWHERE, PRESETS)


def test_pages_say_what_presets_without_stored_runs_reached() -> None:
    for name, text in PRESETS.items():
        page = (DOCS / re.findall(r"docs/(\w+\.md)", text)[0]).read_text()
        for figure in re.findall(r"-?\d[\d,.e-]+\d", text):
            assert figure in page, f"{name}: {figure}"


def test_summary_has_the_best_settings_of_each_environment(tmp_path: Path) -> None:
    for seed, last in enumerate([1.0, 3.0]):
        keep(run(make_run(tmp_path / f"{seed}", {100: last}, seed=seed)), tmp_path / "kept")
    better = make_run(tmp_path / "better", {100: 2.5})
    (better / "overrides.yaml").write_text('["algo=ppo", "env=CartPole-v1", "algo.gamma=0.9"]')
    keep(run(better), tmp_path / "kept")
    best = {"env": "CartPole-v1", "final": "2.500", "steps": 100, "seeds": 1, "settings": "algo.gamma=0.9"}
    assert json.loads(summary(tmp_path / "kept", {"oac": "a test"}, {"ppo-Pong": "21"})) == {
        "runs": {"ppo": [best]},
        "tests": ["oac"],
        "presets": {"ppo-Pong": "21"},
    }


def test_a_row_by_hand(tmp_path: Path) -> None:
    for seed, last in enumerate([1.0, 2.0, 3.0, 10.0]):
        keep(run(make_run(tmp_path / f"{seed}", {50: 20.0, 100: last}, seed=seed)), tmp_path / "kept")
    row = table(tmp_path / "kept", {"ppo CartPole-v1": (100, 2.0)}).splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:6] == ["`ppo`", "CartPole-v1", "100", "", "4", "2.500"]
    assert cells[7:] == ["20.00", "2.000: 3 of 4", "0:10"]
    low, high = map(float, cells[6].split(" to "))
    assert 1.0 <= low < 2.5 < high <= 10.0


def test_a_run_takes_the_place_of_its_like(tmp_path: Path) -> None:
    keep(run(make_run(tmp_path / "a", {100: 1.0}, seed=1)), tmp_path / "kept")
    keep(run(make_run(tmp_path / "b", {100: 2.0}, seed=0)), tmp_path / "kept")
    path = keep(run(make_run(tmp_path / "c", {100: 3.0}, seed=1)), tmp_path / "kept")
    kept = json.loads(path.read_text())["runs"]
    assert [(line["seed"], line["returns"]) for line in kept] == [(0, [2.0]), (1, [3.0])]
    assert len(path.read_text().splitlines()) == 4, "a line for each run, so that changes are easy to read"


def test_settings_make_a_row_of_their_own(tmp_path: Path) -> None:
    plain, tuned = make_run(tmp_path / "a", {100: 1.0}), make_run(tmp_path / "b", {100: 2.0})
    words = '["algo=ppo", "env=CartPole-v1", "algo.gamma=0.9", "trainer.eval_episodes=20", "run_dir=/secret"]'
    (tuned / "overrides.yaml").write_text(words)
    for path in (plain, tuned):
        keep(run(path), tmp_path / "kept")
    text = table(tmp_path / "kept", {})
    assert [line.split("|")[4].strip() for line in text.splitlines()[-2:]] == ["", "`algo.gamma=0.9`"]
    assert "secret" not in text


def test_unfinished_runs_are_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "runs" / "a", {50: 1.0}, status="stopped")
    assert main([str(tmp_path / "runs")], tmp_path, tmp_path / "learned.json") == 1
    assert "not finished (resumable at 50 of 100 steps)" in capsys.readouterr().err
    assert not (tmp_path / "learning").exists()
