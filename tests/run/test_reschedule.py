"""Hyperparameters that are changed when a run is resumed."""

import copy
from pathlib import Path
from typing import Any

import pytest
from toys import put, toy, train

import rlrun
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.stored import read_config
from rlrun.errors import ConfigError
from rlrun.run.reschedule import fitted, rescheduled
from rlrun.schedules.numbers import Schedules
from rlrun.types import Context

WORDS = ["algo=dqn", "env=CartPole", "preset=none", "trainer.eval_every=0", "trainer.eval_episodes=0", "logger=[]",
         "network.hidden=[8]", "trainer.log_every=50", "algo.loop.warmup_steps=20", "algo.loop.batch_size=8",
         "algo.loop.updates_per_step=0.25", "trainer.engine=eager"]  # fmt: skip


def rates(run: Any) -> dict[int, float]:
    return {row["step"]: pytest.approx(row["train/learning_rate"], rel=1e-6) for row in run.rows}


def test_new_learning_rate_of_a_resumed_run_holds_from_its_snapshot_on(tmp_path: Path) -> None:
    run = rlrun.train(*WORDS, "algo.learning_rate=1e-3", "trainer.total_steps=100", run_dir=str(tmp_path / "run"))
    assert main(["resume", str(run.path), "algo.learning_rate=1e-4", "total_steps=200"]) == 0
    assert main(["resume", str(run.path), "algo.learning_rate=1e-5", "total_steps=300"]) == 0
    assert rates(run) == {50: 1e-3, 100: 1e-3, 150: 1e-4, 200: 1e-4, 250: 1e-5, 300: 1e-5}
    stored = read_config(run.path / "config.yaml")["algo"]
    assert stored["learning_rate"] == 1e-3
    assert stored["schedule"] == {"learning_rate": {"piecewise": {"values": [1e-4, 1e-5], "at": [100, 200]}}}


def test_changed_run_is_the_run_that_had_this_schedule_from_its_start(tmp_path: Path) -> None:
    half = rlrun.train(*WORDS, "trainer.total_steps=100", run_dir=str(tmp_path / "half"))
    changed = half.resume("algo.learning_rate=0.05", total_steps=200)
    schedule = "algo.schedule.learning_rate={piecewise: {values: [0.05], at: [100]}}"
    whole = rlrun.train(*WORDS, schedule, "trainer.total_steps=200", run_dir=str(tmp_path / "whole"))
    assert [row.get("loss/critic") for row in changed.rows] == [row.get("loss/critic") for row in whole.rows]


TO_ZERO = "algo.schedule={learning_rate: {linear: {end: 0}}}"


@pytest.fixture(scope="module")
def falling(tmp_path_factory: pytest.TempPathFactory) -> rlrun.Run:
    """A finished run whose learning rate fell from 1e-3 to 0."""
    folder = tmp_path_factory.mktemp("falling") / "run"
    words = [
        "algo.learning_rate=1e-3",
        TO_ZERO,
        "trainer.total_steps=100",
        "trainer.snapshot_every=50",
        "trainer.snapshot_archive_every=50",
    ]
    return rlrun.train(*WORDS, *words, run_dir=str(folder))


def test_resume_says_that_the_learning_rate_is_zero(falling: rlrun.Run, tmp_path: Path, capsys: Any) -> None:
    assert main(["resume", str(falling.path), "total_steps=150", f"into={tmp_path / 'run'}"]) == 0
    line = (
        "algo.learning_rate is 0 after the end of its schedule and up to step 150, so nothing is learned; resume with "
    )
    words = f"{TO_ZERO} (0 at the new end) or algo.learning_rate=0.001"
    assert capsys.readouterr().err == f"{line}{words}\n"
    assert rates(rlrun.Run(tmp_path / "run"))[150] == 0.0


@pytest.mark.parametrize("step", [50, 100])
@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        (["algo.learning_rate=1e-3"], 1e-3, 1e-3),
        (["algo.schedule={}"], 1e-3, 1e-3),
        (["algo.schedule={learning_rate: {}}", "algo.learning_rate=1e-4"], 1e-4, 1e-4),
        (["algo.schedule.learning_rate={}"], 1e-3, 1e-3),
        ([TO_ZERO], None, 0.0),
        (["algo.schedule.learning_rate={linear: {end: 0}}"], None, 0.0),
        ([TO_ZERO, "algo.learning_rate=1e-4"], 1e-4, 0.0),
    ],
)
def test_learning_rate_goes_on_after_the_end_of_its_schedule(
    step: int, words: list[str], first: float | None, last: float, falling: rlrun.Run, tmp_path: Path, capsys: Any
) -> None:
    if first is None:
        first = 1e-3 * (1 - step / 200)
    source, target = falling.path / "snapshots" / f"step_{step:09}", tmp_path / "run"
    assert main(["resume", str(source), "total_steps=200", *words, f"into={target}"]) == 0
    assert "nothing is learned" not in capsys.readouterr().err
    found = read_config(target / "config.yaml")["algo"]
    assert found["learning_rate"] == 1e-3
    number = Schedules(found).numbers["learning_rate"]
    points = {at: number.shape.value_at(1e-3, Context(0, at, 0.0)) for at in (step, 200)}
    assert points == {step: pytest.approx(first), 200: pytest.approx(last)}
    middle = number.shape.value_at(1e-3, Context(0, 147, 0.0))  # the last update is in the tick that begins there
    assert rates(rlrun.Run(target))[150] == middle > 0


def test_run_with_a_new_schedule_resumes_bit_for_bit(falling: rlrun.Run, tmp_path: Path) -> None:
    losses = []
    for name, pause in (("whole", None), ("paused", 150)):
        run = rlrun.Run(tmp_path / name)
        words = ["total_steps=200", TO_ZERO, "algo.learning_rate=1e-3", f"into={run.path}"]
        if pause is not None:
            words.append(f"trainer.stop_at={pause}")
        assert main(["resume", str(falling.path / "snapshots" / "step_000000050"), *words]) == 0
        assert main(["resume", str(run.path)]) == 0
        losses.append([(row["step"], row.get("loss/critic"), row["train/learning_rate"]) for row in run.rows])
    assert losses[0] == losses[1] and len(losses[0]) == 4


def test_resumed_run_without_its_schedule_resumes_again(falling: rlrun.Run, tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    assert main(["resume", str(falling.path), "total_steps=150", f"into={path}"]) == 0
    assert main(["resume", path, "total_steps=200", "algo.learning_rate=1e-3"]) == 0
    assert main(["resume", path, "total_steps=250"]) == 0
    assert rates(rlrun.Run(path)) == {50: 5.2e-4, 100: 0, 150: 0, 200: 1e-3, 250: 1e-3}


def test_new_values_of_scheduled_numbers_become_points() -> None:
    values = jobs(["algo=ppo", "env=CartPole", "preset=none"])[0].values
    values["algo"]["schedule"] = {"clip_range": {"linear": {"end": 0.0}}}
    clip = rescheduled(values, {"algo.clip_range": 0.2, "trainer.total_steps": 900}, 300)
    assert clip == {
        "trainer.total_steps": 900,
        "algo.schedule": {"clip_range": {"piecewise": {"values": [0.2], "at": [300]}}},
    }
    to_zero = {"algo.schedule": {"learning_rate": {"linear": {"end": 0.0}}}, "trainer.total_steps": 900}
    falling = rescheduled(values, to_zero, 300)
    assert falling["algo.schedule"]["learning_rate"]["piecewise"]["at"] == [300, 900]
    assert falling["algo.schedule"]["clip_range"] == {"linear": {"end": 0.0}}, "a schedule that was not typed stays"
    assert rescheduled(values, {"algo.entropy.ent_coef": values["algo"]["entropy"]["ent_coef"]}, 300) == {}, "not new"
    with pytest.raises(ConfigError, match=r"the run is at step 900; add a larger total_steps=\.\.\."):
        rescheduled(values, to_zero, 900)
    found = rescheduled(values, {"algo.entropy.ent_coef": 0.5}, 300)
    assert found.keys() == {"algo.schedule"}
    loop = jobs(["algo=dqn", "env=CartPole", "preset=none"])[0].values
    found = rescheduled(loop, {"algo.loop.updates_per_step": 0.5}, 300)
    assert found["algo.schedule"] == {"loop.updates_per_step": {"piecewise": {"values": [0.5], "at": [300]}}}
    found = rescheduled(values, {"algo.entropy.ent_coef": 0.5}, 300)
    assert found["algo.schedule"]["entropy.ent_coef"] == {"piecewise": {"values": [0.5], "at": [300]}}


def test_setting_that_was_no_number_gets_no_schedule() -> None:
    values = jobs(["algo=ppo", "env=CartPole", "preset=none"])[0].values
    assert values["algo"]["advantage"]["value_lambda"] is None
    words = {"algo.advantage.value_lambda": 0.9}
    assert rescheduled(values, words, 300) == words, "for `stored_config` to refuse"


def test_a_second_change_at_one_step_replaces_the_first() -> None:
    values = jobs(["algo=ppo", "env=CartPole", "preset=none"])[0].values
    for clip_range in (0.1, 0.3):  # as when a run is resumed twice from one snapshot
        values = put(values, rescheduled(values, {"algo.clip_range": clip_range}, 300))
    assert values["algo"]["schedule"] == {"clip_range": {"piecewise": {"values": [0.3], "at": [300]}}}


def test_learning_rates_without_a_schedule_change_alone() -> None:
    values = jobs(["algo=sac", "env=Pendulum", "preset=none"])[0].values
    found = rescheduled(values, {"algo.actor_learning_rate": 1e-4}, 9)
    assert found == {"algo.schedule": {"actor_learning_rate": {"piecewise": {"values": [1e-4], "at": [9]}}}}


def test_new_schedules_change_only_their_numbers() -> None:
    falling = "algo.schedule={actor_learning_rate: {linear: {end: 0}}, critic_learning_rate: {linear: {end: 0}}}"
    values = jobs(["algo=sac", "env=Pendulum", "preset=none", falling])[0].values
    kept = {"linear": {"end": 0}}
    point = {"piecewise": {"values": [1e-4], "at": [9]}}
    for words in ({}, {"algo.schedule.actor_learning_rate": {}}, {"algo.schedule": {"actor_learning_rate": {}}}):
        found = rescheduled(values, {"algo.actor_learning_rate": 1e-4, **words}, 9)
        assert found == {"algo.schedule": {"actor_learning_rate": point, "critic_learning_rate": kept}}
    rate = values["algo"]["critic_learning_rate"]
    found = rescheduled(values, {"algo.schedule": {}, "algo.actor_learning_rate": 1e-4}, 9)
    constant = {"piecewise": {"values": [rate], "at": [9]}}
    assert found == {"algo.schedule": {"actor_learning_rate": point, "critic_learning_rate": constant}}
    assert rescheduled(values, {"algo.schedule.tau": {"piecewise": {"values": [0.1], "at": [50]}}}, 9) == {
        "algo.schedule": {
            "actor_learning_rate": kept,
            "critic_learning_rate": kept,
            "tau": {"piecewise": {"values": [0.1], "at": [50]}},
        }
    }


@pytest.mark.parametrize("until", [{"fraction": 0.5}, {"end_step": 500}], ids=str)
def test_linear_schedule_of_a_resumed_run_ends_at_its_fraction_of_the_new_total_or_its_step(
    until: dict[str, object],
) -> None:
    values = jobs(["algo=ppo", "env=CartPole", "preset=none"])[0].values
    words = {"algo.schedule": {"clip_range": {"linear": {"end": 0.1} | until}}, "trainer.total_steps": 1000}
    points = rescheduled(values, words, 250)["algo.schedule"]["clip_range"]["piecewise"]
    assert points == {"values": [pytest.approx(0.15), 0.1], "at": [250, 500], "linear": True}
    with pytest.raises(ConfigError, match="the run is at step 500; add a larger total_steps"):
        rescheduled(values, words, 500)


@pytest.mark.parametrize(
    ("algo", "rate"),
    [
        ("ppo", "learning_rate"), ("a2c_split", "learning_rate"), ("sac", "actor_learning_rate"),
        ("td3", "critic_learning_rate"), ("dqn", "learning_rate"), ("q_learning", "learning_rate"),
        ("svpg", "particle.learning_rate"), ("muzero", "learning_rate"), ("iql", "actor_learning_rate"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [{"linear": {"end": 0.0}}, {"StepLR": {"step_size": 1}}])
def test_every_schedule_of_a_learning_rate_can_end_in_mid_run(
    algo: str, rate: str, shape: dict[str, Any], build: Any
) -> None:
    values = toy(algo, **{"algo.schedule": {rate: shape}})
    first = train(build(values), 2)
    changed = put(copy.deepcopy(values), rescheduled(values, {"algo.schedule": {}}, first.steps))
    second = build(changed)
    second.load_state_dict(fitted(first.state_dict(), second))
    train(second, 3)
    number = second.schedules.numbers[rate]
    assert number.value == number.start


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("algo.learning_rate=-1", "algo.learning_rate=-1: must be"),
        ("algo.gamma=0.5", "algo.gamma: cannot be changed in a resumed run"),
        (
            "algo.schedule.learning_rate={StepLR: {step_size: 9}}",
            "algo.schedule.learning_rate={StepLR: {step_size: 9}}: cannot begin in the",
        ),
        ("algo.schedule.gamma={linear: {end: 1}}", "algo.schedule.gamma: cannot change during a run"),
        ("algo.schedule.gamma={}", "algo.schedule.gamma: cannot change during a run"),
        ("algo.schedule=5", "algo.schedule=5: must be a section, such as {learning_rate: {linear: {end: 0}}}"),
        (
            "algo.lr_schedule={linear: {}}",
            "unknown key; did you mean algo.schedule ({learning_rate: {linear: {end: 0}}}",
        ),
    ],
)
def test_other_changes_are_refused_in_one_line(word: str, line: str, tmp_path: Path, capsys: Any) -> None:
    run = rlrun.train(*WORDS, "trainer.total_steps=50", run_dir=str(tmp_path / "run"))
    before = (run.path / "config.yaml").read_text()
    capsys.readouterr()
    assert main(["resume", str(run.path), word, "total_steps=100"]) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert (run.path / "config.yaml").read_text() == before
