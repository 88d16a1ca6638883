"""Runs that end before their last step: by a rule of `trainer.stop_when`, or paused at `trainer.stop_at`."""

import json
from pathlib import Path
from typing import Any

import pytest

import rlrun
from rlrun.cli import main
from rlrun.config.schema import StopWhenConfig
from rlrun.errors import ConfigError, RunError
from rlrun.run.stopping import StoppingRules
from rlrun.settings import parse
from rlrun.snapshot.store import Store

NEVER = {"metric": "eval/return_mean", "at_least": None, "at_most": None, "times": 1, "plateau": None, "hours": None}
WORDS = ["algo=ppo", "env=CartPole", "preset=none", "logger=[]", "env.num_envs=2", "algo.loop.rollout_steps=8",
         "algo.epochs=1", "trainer.total_steps=160", "trainer.log_every=16", "trainer.eval_every=48",
         "trainer.eval_episodes=1", "trainer.eval_max_steps=20",
         "algo.schedule={learning_rate: {linear: {end: 0}}}"]  # fmt: skip


def ends_at(values: list[float], **rules: Any) -> tuple[int, str] | None:
    """Returns the number of the first row after which the rules end a run, and why. values: of the metric, per row."""
    found = StoppingRules(StopWhenConfig(**(NEVER | rules)))
    for number, value in enumerate(values, start=1):
        found.add({"step": number, "wall_s": 900.0 * number, "eval/return_mean": value})
        if why := found.reason():
            return number, why
    return None


@pytest.mark.parametrize(
    ("values", "rules", "expected"),
    [
        ([1, 5, 2, 6, 7], {"at_least": 5}, (2, "eval/return_mean was at least 5")),
        ([1, 5, 2, 6, 7], {"at_least": 5, "times": 2}, (5, "eval/return_mean was at least 5 2 times in a row")),
        ([9, 3, 2], {"at_most": 3, "times": 2}, (3, "eval/return_mean was at most 3 2 times in a row")),
        ([1, 2, 2, 1, 3, 3, 2, 1], {"plateau": 3}, (8, "eval/return_mean has not risen above 3 3 times in a row")),
        ([1, 2, 3, 4, 5], {"hours": 1.0}, (4, "it trained for 1 hours")),
        ([1, 2, 3, 9], {"hours": 1.0, "at_least": 9}, (4, "eval/return_mean was at least 9")),
        ([1, 2, 3, 4], {"at_least": 5, "times": 9, "plateau": 9, "hours": 9.0}, None),
    ],
)
def test_rules_read_the_rows(values: list[float], rules: dict[str, Any], expected: Any) -> None:
    assert ends_at(values, **rules) == expected


def test_rows_without_the_metric_do_not_count() -> None:
    rules = StoppingRules(StopWhenConfig(**(NEVER | {"at_least": 5.0, "times": 2})))
    for row in ({"eval/return_mean": 5.0}, {}, {"eval/return_mean": 6.0}):
        assert rules.reason() is None
        rules.add({"step": 1, "wall_s": 1.0, **row})
    assert rules.reason() is not None


def test_an_evaluation_without_the_metric_is_an_error() -> None:
    rules = StoppingRules(StopWhenConfig(**(NEVER | {"metric": "eval/retrun_mean", "at_least": 5.0})))
    with pytest.raises(
        RunError, match=r"^trainer.stop_when.metric=eval/retrun_mean: no such metric; did you mean eval"
    ):
        rules.add({"step": 1, "wall_s": 1.0, "eval/return_mean": 5.0})
    with pytest.raises(ConfigError, match=r"trainer.stop_when.metric='return': must be a metric of log rows"):
        rlrun.train(*WORDS, "trainer.stop_when.metric=return")


def test_limit_of_a_success_rate_is_a_fraction() -> None:
    rate = NEVER | {"metric": "eval/success_rate"}
    parse(StopWhenConfig, rate | {"at_least": 1.0, "at_most": 0.0}, "trainer.stop_when")
    for limit in ({"at_least": 2.0}, {"at_most": -0.5}):
        with pytest.raises(ConfigError, match=r"^trainer\.stop_when: must have limits from 0 to 1, as a success rate"):
            parse(StopWhenConfig, rate | limit, "trainer.stop_when")
        parse(StopWhenConfig, NEVER | limit, "trainer.stop_when")


def test_a_rule_ends_a_run_which_a_resume_leaves_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = rlrun.train(
        *WORDS, "trainer.stop_when.at_least=1", "trainer.stop_when.times=2", run_dir=str(tmp_path / "run")
    )
    assert (run.summary["status"], run.summary["step"]) == ("done", 96)
    assert run.summary["stop_reason"] == "eval/return_mean was at least 1 2 times in a row"
    capsys.readouterr()
    assert main(["resume", str(run.path)]) == 0
    assert "is finished: 96 of 160 steps, because eval/return_mean was at least 1" in capsys.readouterr().out
    (run.path / "summary.json").unlink()  # killed after its last snapshot
    run.resume()
    assert (run.summary["status"], run.summary["step"]) == ("done", 96)
    run.resume(**{"trainer.stop_when.plateau": 99, "trainer.stop_when.at_least": None})
    assert (run.summary["status"], run.summary["step"]) == ("done", 160) and "stop_reason" not in run.summary


def test_a_number_of_episodes_ends_a_run_at_the_next_row(tmp_path: Path) -> None:
    rules = ["trainer.stop_when.metric=train/episodes", "trainer.stop_when.at_least=3"]
    words = [*WORDS, *rules, "trainer.total_steps=2000", "trainer.log_every=1", "trainer.eval_every=0"]
    run = rlrun.train(*words, run_dir=str(tmp_path / "run"))
    counts = [row["train/episodes"] for row in run.rows]
    assert counts[-1] >= 3 and all(count < 3 for count in counts[:-1])
    assert run.summary["stop_reason"] == "train/episodes was at least 3"


def test_a_resume_counts_the_rows_before_it(tmp_path: Path) -> None:
    run = rlrun.train(*WORDS, "trainer.stop_at=48", run_dir=str(tmp_path / "run"))
    run.resume(**{"trainer.stop_when.at_least": 1, "trainer.stop_when.times": 2})
    assert run.summary["step"] == 96


def test_a_paused_run_adds_no_row_and_goes_on_as_if_it_had_not_paused(tmp_path: Path) -> None:
    whole = rlrun.train(*WORDS, run_dir=str(tmp_path / "whole"))
    run = rlrun.train(*WORDS, "trainer.stop_at=40", run_dir=str(tmp_path / "run"))
    assert (run.summary["status"], run.summary["step"]) == ("paused", 48)  # the first tick at or after step 40
    assert run.summary["stop_reason"] == "trainer.stop_at=40 pauses it until `rlrun resume`"
    assert [row["step"] for row in run.rows] == [16, 32, 48]
    run.resume(**{"trainer.stop_at": 70})
    assert (run.summary["status"], run.summary["step"]) == ("paused", 80)
    run.resume(**{"trainer.stop_at": 70})  # it is there already
    assert (run.summary["status"], run.summary["step"]) == ("paused", 80)
    run.resume()
    assert (run.summary["status"], run.summary["step"]) == ("done", 160) and "stop_reason" not in run.summary
    digests = [Store(path).load().digest for path in (whole.path, run.path)]
    assert digests[0] == digests[1], "schedules end at total_steps"
    assert [row["step"] for row in run.rows] == [row["step"] for row in whole.rows]


def test_a_run_pauses_between_rows(tmp_path: Path) -> None:
    run = rlrun.train(*WORDS, "trainer.stop_at=16", "trainer.log_every=100", "trainer.eval_every=100",
                      run_dir=str(tmp_path / "run"))  # fmt: skip
    assert (run.summary["step"], run.rows) == (16, [])
    assert json.loads((run.path / "summary.json").read_text())["status"] == "paused"
    assert (run.path / "snapshots" / "step_000000016").exists()


IN_UPDATES = [*WORDS, "trainer.total_steps=1e6", "trainer.total_updates=10"]


def test_run_of_a_number_of_updates_ends_as_one_of_their_steps(tmp_path: Path) -> None:
    steps = rlrun.train(*WORDS, run_dir=str(tmp_path / "steps"))
    updates = rlrun.train(*IN_UPDATES, run_dir=str(tmp_path / "updates"))
    assert updates.summary["step"] == 160 and updates.summary["stop_reason"] == "it made 10 updates"
    rates = [[row["train/learning_rate"] for row in run.rows] for run in (steps, updates)]
    assert rates[0] == rates[1] and rates[0][-1] < rates[0][0] / 5, "the schedule falls over the updates"
    assert [row["train/updates"] for row in steps.rows] == [*range(1, 11)]
    both = rlrun.train(*WORDS, "trainer.total_updates=20", run_dir=str(tmp_path / "both"))
    assert [row["train/learning_rate"] for row in both.rows] == rates[0], "the steps end the run"


def test_finished_run_goes_on_to_more_updates_with_the_schedule_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rlrun.train(*IN_UPDATES, run_dir=str(tmp_path / "run"))
    assert main(["resume", str(run.path)]) == 0
    assert "because it made 10 updates; a resume with other" in capsys.readouterr().out
    (run.path / "summary.json").unlink()  # killed after its last snapshot
    run.resume()
    assert (run.summary["status"], run.summary["step"]) == ("done", 160)
    assert run.summary["stop_reason"] == "it made 10 updates"
    assert main(["resume", str(run.path), "trainer.total_updates=10"]) == 0, "nothing has changed"
    capsys.readouterr()
    assert main(["resume", str(run.path), "trainer.total_updates=9"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: trainer.total_updates=9: step_000000160 has 10 updates; set a larger number"
    ]
    assert main(["resume", str(run.path), "trainer.total_updates=12"]) == 0
    captured = capsys.readouterr()
    assert "algo.learning_rate is 0 after the end of its schedule" in captured.out + captured.err
    assert [row["train/learning_rate"] for row in run.rows[-2:]] == [0, 0]
    assert run.rows[-1]["train/updates"] == 12


@pytest.mark.parametrize("unit", ["updates", "episodes"])
def test_run_that_pauses_within_a_period_goes_on_as_if_it_had_not_paused(unit: str, tmp_path: Path) -> None:
    periods = [f"trainer.period_unit={unit}", "trainer.log_every=3", "trainer.eval_every=4", "trainer.snapshot_every=5"]
    words = [*WORDS, *periods, "trainer.log_every=3", "env.max_episode_steps=10"]
    whole = rlrun.train(*words, run_dir=str(tmp_path / "whole"))
    run = rlrun.train(*words, "trainer.stop_at=30", run_dir=str(tmp_path / "run"))
    run.resume(**{"trainer.stop_at": 80})
    run.resume()
    keys = ("step", f"train/{unit}", "eval/return_mean")
    rows, expected = ([[row.get(key) for key in keys] for row in one.rows] for one in (run, whole))
    assert rows == expected
    assert sum(row[2] is not None for row in rows) >= 3
    assert Store(run.path).load().digest == Store(whole.path).load().digest


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("trainer.total_updates=0", "trainer.total_updates=0: must be greater than or equal to 1"),
        (
            "trainer.period_unit=iterations",
            "trainer.period_unit='iterations': must be 'steps', 'updates' or 'episodes'",
        ),
    ],
)
def test_lengths_and_units_that_do_not_exist_are_refused_in_one_line(
    word: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *WORDS, word]) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: {fault}"]
