"""The page of a sweep: its pictures, its tables, and what it does with untrusted names."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from made_sweep import EVERY, SPACE, STEPS, make_sweep
from sound_html import Sound

from rlrun.cli import main
from rlrun.cli import sweep as cli
from rlrun.errors import ConfigError
from rlrun.report.figures import DOT, LABEL, LINE, POINT, SINGLE, Mark, Picture
from rlrun.report.statistics import interval
from rlrun.sweep import figures, page, stored
from rlrun.sweep.ranges import Choice, Int, Log, Logit, PowerOfTwo, Range, Uniform
from rlrun.sweep.scale import scale
from rlrun.sweep.standings import short_names, standings, totals
from rlrun.sweep.stored import Stored
from rlrun.sweep.trials import FRESH

FAULT = "nan in the loss of <b>the critic</b>"


@pytest.fixture(scope="module")
def found(tmp_path_factory: Any) -> Stored:
    """A sweep of 200 trials."""
    path = tmp_path_factory.mktemp("sweep") / "sac-HalfCheetah"
    return stored.read(make_sweep(path, 200, failing=FAULT))


@pytest.fixture(scope="module")
def pictures(found: Stored) -> dict[str, Picture]:
    return {picture.name: picture for picture in figures.draw(found)}


def marks(picture: Picture, kind: str, panel: int = 0) -> list[Mark]:
    return [mark for mark in picture.panels[panel].marks if mark.kind == kind]


def test_page_of_200_trials_is_small_and_loads_nothing(found: Stored, tmp_path: Path) -> None:
    path = page.write(found, tmp_path / "out", "rlrun report x")
    text = path.read_text()
    assert [*path.parent.iterdir()] == [path] and path.name == "report.html"
    assert len(text) < 2_000_000
    html = Sound(text)
    assert max(html.ids.values()) == 1
    assert all(load.startswith(("data:", "#")) for load in html.loads)
    assert not re.search(r"<script [^>]*src|@import|url\(|eval\(|innerHTML| style=", text)
    assert not [link for link in html.links if not link.startswith("#")]
    assert all(link[1:] in html.ids for link in html.links if link.startswith("#"))
    assert "<b>the critic" not in text and "&lt;b&gt;the critic" in text


def test_names_and_values_of_an_untrusted_sweep_are_escaped(tmp_path: Path) -> None:
    space: dict[str, Any] = {
        "algo.<i>rate</i>": {"log": [1e-5, 1e-2]},
        "algo.kind": {"choice": ["</script><u>1", "\u202e2"]},
    }
    path = make_sweep(tmp_path / "<s>x", 24, envs=("<em>Env",), space=space, failing="</title><u>")
    text = page.html(stored.read(path), "rlrun report")
    Sound(text)
    assert not re.search(r"<(s|i|u|em)>", text) and "\u202e" not in text
    readings = re.search(r'id="readings">(.*?)</script>', text)
    assert readings is not None and json.loads(readings[1])["methods"][:2] == ["trial 0", "trial 1"]


def test_history_has_every_trial_and_the_best_so_far(found: Stored, pictures: dict[str, Picture]) -> None:
    scored = [one for one in standings(found.trials) if one.score is not None]
    dots = {float(mark.x[0]): float(mark.y[0]) for mark in marks(pictures["history"], DOT)}
    assert dots == {one.number: one.score for one in scored} and len(dots) == 190
    crosses = marks(pictures["history"], POINT)
    assert [mark.x[0] for mark in crosses] == [*range(7, 200, 20)] and FAULT in crosses[0].text
    numbers, scores = figures.best_so_far(standings(found.trials))
    best = found.trials.best()[0]
    assert numbers[-1] == best.number and scores[-1] == best.score(2)
    (line,) = marks(pictures["history"], LINE)
    assert line.x[-1] == 199 and line.y[-1] == scores[-1] and line.y[0] == scores[0]


def test_diverged_trial_stands_at_the_edge_of_the_axis(found: Stored) -> None:
    every = standings(found.trials)
    best = [every[one.number] for one in found.trials.best()]
    wild = replace(best[-1], score=-1e9)
    scores = figures._score_axis([*best[:-1], wild])
    assert -20_000 < scores.low < min(one.score or 0.0 for one in best[:-1])
    panel = figures.history([*best[:-1], wild], found.trials, scores)
    assert min(float(mark.y[0]) for mark in panel.marks) == scores.low


def test_rungs_show_curves_that_end_where_trials_paused(found: Stored, pictures: dict[str, Picture]) -> None:
    (panel,) = pictures["rungs"].panels
    assert list(panel.x.ticks) == STEPS and panel.x.log
    ends = {mark.index: mark.x[-1] for mark in panel.marks}
    looks = {mark.index: mark.look for mark in panel.marks}
    for one in standings(found.trials):
        if one.rung is not None:
            assert ends[one.number] == STEPS[one.rung]
            assert (looks[one.number] == "paused") == (one.rung < 2)
    trial = found.trials.trials[found.trials.winner or 0]
    assert looks[trial.number] == "winner" and panel.marks[-1].index == trial.number, "it is drawn last"
    steps, values = figures.curve(trial, "HalfCheetah", STEPS)
    assert steps.tolist() == [*range(EVERY, STEPS[-1] + 1, EVERY)] and values.shape == (2, 100)


def test_curves_space_evaluations_between_the_rungs_that_they_reached(found: Stored) -> None:
    trial = found.trials.best()[0]
    rungs = [25_000, 90_000, 300_000]  # the last interval before a rung is shorter
    steps, _ = figures.curve(trial, "HalfCheetah", rungs)
    assert steps[[9, 29, 99]].tolist() == rungs


def test_slices_use_the_scale_of_the_range(found: Stored, pictures: dict[str, Picture]) -> None:
    assert [panel.title for panel in pictures["slices"].panels] == [*SPACE]
    rate = pictures["slices"].panels[0]
    shown = {mark.text.partition(":")[0]: mark for mark in rate.marks}
    winner = found.trials.trials[found.trials.winner or 0]
    mark = shown[f"trial {winner.number}"]
    assert float(mark.x[0]) == Log(1e-5, 3e-3).position(winner.values["algo.actor_learning_rate"])
    alphas = [one for one in found.trials.trials if "algo.buffer.alpha" in one.values and not one.failed]
    assert len(pictures["slices"].panels[5].marks) == len(alphas) < 190


def test_parallel_coordinates_draw_better_trials_later(found: Stored, pictures: dict[str, Picture]) -> None:
    lines = marks(pictures["parallel"], SINGLE)
    assert lines[-1].look == "winner" and {len(mark.x) for mark in lines} == {len(SPACE) + 1}
    looks = [mark.look for mark in lines[:-1]]
    assert looks == sorted(looks) and set(looks) == {"q0", "q1", "q2", "q3"}
    assert 190 * 0.05 - 1 <= looks.count("q3") <= 190 * 0.05 + 1
    assert "not set" in [mark.text for mark in marks(pictures["parallel"], LABEL)], "conditional keys"


def test_pareto_front_has_no_trial_that_another_beats(found: Stored) -> None:
    scored = [one for one in standings(found.trials) if one.score is not None]
    front = figures.pareto(scored)
    assert len(front) > 2
    for one in scored:
        beaten = any(
            other.seconds <= one.seconds
            and (other.score or 0) >= (one.score or 0)
            and (other.seconds, other.score) != (one.seconds, one.score)
            for other in scored
        )
        assert (one in front) != beaten


def test_winners_have_intervals_over_fresh_seeds(found: Stored) -> None:
    table = page.winners(found)
    first = found.trials.trials[int(table.rows[0][0])]
    scores = figures.fresh_scores(first)
    low, high = interval(scores)
    assert first.number == found.trials.winner and len(scores[0]) == 5 and len(table.rows) == 3
    assert table.rows[0][2] == f"{low:,.0f} to {high:,.0f}"
    assert table.rows[0][4] == f"{first.score(2):,.0f}"


def test_table_has_every_trial_best_first(found: Stored) -> None:
    every = standings(found.trials)
    table = page.every_trial(found)
    assert len(table.rows) == 200 and {row[1] for row in table.rows[-10:]} == {"failed"}
    assert table.rows[0][0] == found.trials.best()[0].number
    assert len(page.failures(every).rows) == 10


def test_totals_count_every_run_once(found: Stored) -> None:
    taken = totals(found.trials, {"HalfCheetah": STEPS})
    folders = {job.folder for trial in found.trials.trials for job in trial.results}
    assert (taken.runs, taken.failed) == (len(folders) + 10, 10)
    at_rungs = [len([f for f in folders if _furthest(found, f) == rung]) for rung in range(3)]
    assert taken.steps == int(np.dot(at_rungs, STEPS))


def _furthest(found: Stored, folder: str) -> int:
    return max(job.rung for trial in found.trials.trials for job in trial.results if job.folder == folder)


def test_repeating_command_has_the_ranges_and_settings_that_differ(tmp_path: Path) -> None:
    space = {"algo.gamma": {"logit": [0.9, 0.999]}, "network.hidden": {"choice": [[64, 64], [256, 256]]}}
    path = make_sweep(tmp_path / "s", 3, envs=("A", "B"), space=space, normalize={"A": [0, 1], "B": [0, 2]})
    words = page.repeating(stored.read(path))
    assert words[:5] == ["rlrun", "sweep", "algo=sac", "env=A,B", "algo.gamma=logit(0.9,0.999)"]
    assert words[5:7] == ["network.hidden=choice([64, 64],[256, 256])", "trials=3"]
    Sound(page.html(stored.read(path), "rlrun report"))
    assert [panel.title for panel in figures.curves(stored.read(path), standings(stored.read(path).trials))] == [
        "A",
        "B",
    ]
    assert page.repeating(stored.read(make_sweep(tmp_path / "t", 1))) == [], "conditions cannot be typed"


def test_repeating_command_reads_no_plugin_that_the_sweep_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pack" / "conf" / "space").mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "conf" / "space" / "mine.yaml").write_text("algo.gamma: {logit: [0.9, 0.999]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = stored.read(make_sweep(tmp_path / "s", 1, space={"algo.gamma": {"logit": [0.9, 0.999]}}))
    found.described.runs["HalfCheetah"]["words"] = ["algo=mine", "env=HalfCheetah", "plugins=[pack]"]
    assert "algo.gamma=logit(0.9,0.999)" in page.repeating(found)


def test_page_counts_the_trials_of_a_grid_that_are_fewer_than_the_setting(tmp_path: Path) -> None:
    path = make_sweep(tmp_path / "s", 4, space={"algo.loop.batch_size": {"int": [1, 4]}}, search="grid")
    found = stored.read(path)
    assert "<dt>trials</dt><dd>4</dd>" in page.html(replace(found, cfg=replace(found.cfg, trials=9)), "")


def test_page_and_table_of_many_trials_show_the_best(
    found: Stored, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("standings", "page"):
        monkeypatch.setattr(f"rlrun.sweep.{module}.MOST_SHOWN", 20)
    text = page.html(found, "rlrun report x")
    assert "the best 20 of 200 trials" in text
    for picture in figures.draw(found):
        assert picture.name == "importances" or all(
            len(marks(picture, DOT, i)) <= 20 for i in range(len(picture.panels))
        )
    best = {one.number for one in found.trials.best()[:20]}
    (history,) = [picture for picture in figures.draw(found) if picture.name == "history"]
    assert {float(mark.x[0]) for mark in marks(history, DOT)} == best
    assert main(["sweep", "status", str(found.path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[21] == "and 180 other trials" and said[1].split()[0] == str(found.trials.best()[0].number)


def test_sweep_that_ended_without_a_score_is_not_called_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_sweep(tmp_path / "s", 2, seeds=1)
    asked, *_ = (path / "journal.jsonl").read_text().splitlines(keepends=True)
    failed = [{"event": "failed", "trial": one, "rung": 0, "env": "HalfCheetah", "seed": 0, "branch": 0, "why": "nan"}
              for one in range(2)]  # fmt: skip
    (path / "journal.jsonl").write_text(asked + json.dumps(failed[0]) + "\n")
    assert stored.read(path).state == "interrupted"
    (path / "journal.jsonl").write_text(asked + "".join(json.dumps(one) + "\n" for one in failed))
    assert stored.read(path).state == "ended: no trial has a score"
    assert main(["sweep", "status", str(path)]) == 0
    said = capsys.readouterr().out
    assert "ended: no trial has a score" in said and "interrupted" not in said and "left" not in said


def test_sweep_without_a_winner_says_why_and_shows_the_best_of_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_sweep(tmp_path / "s", 4, seeds=1)
    lines = []
    for event in map(json.loads, (path / "journal.jsonl").read_text().splitlines()):
        if event["event"] == "scored" and event["seed"] >= FRESH:
            kept = {key: event[key] for key in ("trial", "rung", "env", "seed", "branch")}
            event = {"event": "failed", **kept, "why": "nan"}
        lines.append(json.dumps(event) + "\n")
    (path / "journal.jsonl").write_text("".join(lines[:-1]))
    found = stored.read(path)
    why = r"no winner, because runs of all the best trials failed on fresh seeds \(000\d-HalfCheetah-s1000: nan\)"
    assert re.fullmatch(f"ended: {why}", found.state)
    assert cli._conclude(path, found.trials) == 1 and not (path / "best.yaml").exists()
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: no winner, because") and f"rlrun sweep best {path}\n" in said
    assert main(["sweep", "best", str(path)]) == 0
    assert "algo.gamma=" in capsys.readouterr().out
    assert "HalfCheetah-s1000" in page.html(found, "rlrun report"), "the table of failures"


def test_sweep_without_scores_has_a_page(tmp_path: Path) -> None:
    path = make_sweep(tmp_path / "s", 1)
    (path / "journal.jsonl").write_text("")
    text = page.html(stored.read(path), "rlrun report")
    Sound(text)
    assert "No trial has a score yet." in text and "<figure" not in text


SCORED = {
    "event": "scored",
    "trial": 0,
    "rung": 0,
    "env": "E",
    "seed": 0,
    "branch": 0,
    "step": 1,
    "score": 1.0,
    "seconds": 1.0,
}


@pytest.mark.parametrize(
    "event",
    [
        {"event": "asked", "points": [[0.5, 0.5]], "values": [{"algo.gamma": "x"}]},
        {
            "event": "asked",
            "points": [[0.5, 0.5]],
            "values": [{"algo.gamma": 0.99, "network.hidden": "none of the choices"}],
        },
        {"event": "asked", "points": [[0.5, 0.5]], "values": [{"algo.gamma": 1.0}]},
        {"event": "measured_again", "trials": [0], "seeds": "many"},
        {"event": "measured_again", "trials": [0], "seeds": 10**12},
        {**SCORED, "evaluations": []},
        {**SCORED, "evaluations": [1.0, float("nan")]},
        {**SCORED, "evaluations": [1.0], "score": "high"},
        {**SCORED, "evaluations": [1.0], "rung": 9},
        {**SCORED, "evaluations": [1.0], "env": "<b>"},
    ],
)
def test_journal_with_impossible_values_has_one_line(
    event: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"algo.gamma": {"logit": [0.9, 0.999]}, "network.hidden": {"choice": [[64, 64], [256, 256]]}}
    path = make_sweep(tmp_path / "s", 1, envs=("E",), space=space)
    asked, *_ = (path / "journal.jsonl").read_text().splitlines(keepends=True)
    (path / "journal.jsonl").write_text(asked + json.dumps(event) + "\n")
    for command in (["report"], ["sweep", "status"]):
        assert main([*command, str(path)]) == 2
        said = capsys.readouterr().err
        assert (
            re.search(r"journal.jsonl: (trial|line 2)", said)
            and "Traceback" not in said
            and len(said.splitlines()) == 1
        )
    assert not (path / "report.html").exists()


@pytest.mark.parametrize("steps", [[], [300, 100], ["a"], [100], [100, 200, 10**90]])
def test_sweep_with_steps_that_do_not_rise_is_refused(steps: list[Any], tmp_path: Path) -> None:
    path = make_sweep(
        tmp_path / "s", 1, envs=("HalfCheetah", "Hopper"), normalize={"HalfCheetah": [0, 1], "Hopper": [0, 1]}
    )
    values = yaml.safe_load((path / "sweep.yaml").read_text())
    values["runs"]["HalfCheetah"]["steps"] = steps
    (path / "sweep.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    with pytest.raises(ConfigError, match="runs must have words, and steps that rise"):
        stored.read(path)


def test_report_of_a_sweep_stands_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_sweep(tmp_path / "s", 2)
    assert main(["report", str(path)]) == 0
    assert (path / "report.html").is_file() and "2 trials" in capsys.readouterr().out
    assert main(["report", str(path), f"out={tmp_path / 'there'}"]) == 0
    assert [one.name for one in (tmp_path / "there").iterdir()] == ["report.html"]
    capsys.readouterr()
    assert main(["report", str(path), "by=algo.gamma"]) == 2
    assert "by=algo.gamma: is for runs; the page of a sweep takes only out=..." in capsys.readouterr().err
    assert main(["report", str(path), str(tmp_path)]) == 2
    assert "name its folder alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (Log(1e-5, 1e-2), ["1e-5", "0.0001", "0.001", "0.01"]),
        (Log(0.02, 0.3), ["0.02", "0.05", "0.1", "0.2"]),
        (Log(0.1, 1.0), ["0.1", "1"]),
        (Log(3e-4, 4e-4), ["0.0003", "0.0004"]),
        (Logit(0.9, 0.9999), ["0.9", "0.99", "0.999", "0.9999"]),
        (Uniform(0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (PowerOfTwo(64, 1024), ["64", "128", "256", "512", "1024"]),
        (Int(1, 20), ["1", "5", "9", "13", "17"]),
        (Choice(("a", [64, 64])), ["a", "[64, 64]"]),
    ],
)
def test_scale_of_a_range_has_round_labels(values: Range, labels: list[str]) -> None:
    axis = scale(values)
    assert list(axis.labels) == labels
    assert all(axis.low < tick < axis.high for tick in axis.ticks)


def test_short_names_tell_keys_apart() -> None:
    keys = ["algo.gamma", "algo.actor.lr", "algo.critic.lr", "algo.buffer.name", "lr"]
    assert [*short_names(keys).values()] == ["gamma", "actor.lr", "critic.lr", "buffer.name", "lr"]
