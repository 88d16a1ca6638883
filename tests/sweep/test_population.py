"""Population-based training, with simulated and with real runs."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlrun.cli import main
from rlrun.cluster import Command, Ended
from rlrun.config.jobs import jobs
from rlrun.sweep import driver as driver_module
from rlrun.sweep import journal, rungs
from rlrun.sweep.branching import BranchingRuns, schedule
from rlrun.sweep.driver import Driver
from rlrun.sweep.events import apply_all
from rlrun.sweep.journal import Event, Journal
from rlrun.sweep.population import Population
from rlrun.sweep.ranges import Choice, Log, Logit, Uniform
from rlrun.sweep.runs import RunTemplate
from rlrun.sweep.scoring import Scoring
from rlrun.sweep.search import Random
from rlrun.sweep.settings import settings
from rlrun.sweep.space import Dimension, Space
from rlrun.sweep.standings import last_results, totals
from rlrun.sweep.trials import Change, Trial, Trials

ENV = "Toy"
STEPS = [*range(100, 2100, 100)]
SPACE = Space([Dimension("algo.learning_rate", Log(0.01, 1.0), {})])


class KilledError(Exception):
    """The driver is killed at this instant."""


def progress(rate: float, step: int) -> float:
    """Returns how much 100 steps before `step` add to the return. The best learning rate changes midway."""
    best = 0.8 if step <= STEPS[-1] / 2 else 0.05
    return max(0.0, 1 - 2 * abs(rate - best))


class Toy:
    """Runs whose return is the sum of their progress. The return so far is their only state, in their rows."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.waiting: list[Command] = []

    def submit(self, commands: Sequence[Command]) -> str:
        self.waiting += commands
        return ""

    def adopt(self, commands: Sequence[Command]) -> list[str]:
        return []

    def ended(self) -> list[Ended]:
        self.rng.shuffle(self.waiting)
        done, self.waiting = self.waiting[:2], self.waiting[2:]
        return [Ended(command.name, self.trained(command.words)) for command in done]

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        self.waiting = []

    def trained(self, words: list[str]) -> int:
        typed = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        folder = Path(typed.get("run_dir", words[1]))
        (folder / "snapshots").mkdir(parents=True, exist_ok=True)
        rows = []
        if (folder / "metrics.jsonl").exists():
            rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        start = 0.0
        if words[0] == "train":
            start = float(typed["algo.learning_rate"])
            (folder / "start").write_text(str(start))
        if self.rng.random() < 0.2:
            return -9
        points = yaml.safe_load(typed["algo.schedule"].replace(":", ": "))["learning_rate"]["piecewise"]
        rates = [float((folder / "start").read_text()), *points["values"]]
        goal = int(typed.get("trainer.stop_at", STEPS[-1]))
        for step in range(len(rows) * 100 + 100, goal + 1, 100):
            rate = rates[sum(at < step for at in points["at"])]
            before = rows[-1]["eval/return_mean"] if rows else 0.0
            rows.append({"step": step, "wall_s": 1.0, "eval/return_mean": before + progress(rate, step)})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "snapshots" / "LATEST").write_text(str(goal))
        status = "done" if goal == STEPS[-1] else "paused"
        (folder / "summary.json").write_text(json.dumps({"status": status, "step": goal}))
        return 0


def trained(folder: Path, rng: random.Random, kill: bool = False, **changes: Any) -> Trials:
    """Trains a population in a folder to its end, or from where it was."""
    cfg = settings({"kind": "pbt", "trials": 4, "kind.exploit": 0.25, "winners": 0, "workers": 2} | changes)
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    trials = apply_all(Trials([ENV], 1, len(STEPS) - 1), journal.read(folder / "journal.jsonl"), cfg, SPACE)

    def say(event: Event, trials: Trials) -> None:
        if kill and rng.random() < 0.1:
            raise KilledError

    runs = BranchingRuns(folder / "trials", {ENV: RunTemplate([f"env={ENV}"], STEPS)}, cfg.metric, Scoring(cfg, [ENV]))
    strategy = Population(cfg, SPACE, {}, Random(SPACE, cfg.seed, cfg.trials), trials)
    driver = Driver(strategy, trials, Journal(folder / "journal.jsonl"), runs, Toy(rng), cfg, say)
    try:
        driver.run()
    finally:
        driver.close()
    return trials


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "POLL_S", 0.0)
    monkeypatch.setattr(driver_module, "ATTEMPTS", 50)


def final(trials: Trials) -> float:
    assert trials.winner is not None
    (job,) = trials.trials[trials.winner].jobs(trials.last_rung)
    return trials.trials[trials.winner].results[job].score


def test_population_of_four_beats_the_best_constant_learning_rate(tmp_path: Path) -> None:
    constant = max(sum(progress(rate / 1000, step) for step in STEPS) for rate in range(10, 1000))
    found = [final(trained(tmp_path / str(seed), random.Random(seed), seed=seed)) for seed in range(5)]
    assert sorted(found)[2] > constant  # the median of five populations


def test_schedule_of_the_winner_gives_its_return_in_one_run(tmp_path: Path) -> None:
    trials = trained(tmp_path, random.Random(0))
    winner = trials.trials[trials.winner or 0]
    points = schedule(winner)["learning_rate"]["piecewise"]
    rates = [winner.start_values["algo.learning_rate"], *points["values"]]
    assert points["at"] and final(trials) == pytest.approx(
        sum(progress(rates[sum(at < step for at in points["at"])], step) for step in STEPS)
    )


def test_population_that_is_killed_at_random_instants_equals_one_that_is_not(tmp_path: Path) -> None:
    straight = trained(tmp_path / "straight", random.Random(0))
    kills = 0
    for seed in range(5):
        rng = random.Random(seed)
        while True:
            try:
                trials = trained(tmp_path / str(seed), rng, kill=True)
                break
            except KilledError:
                kills += 1
        assert [(one.values, one.changes, one.branches, one.results) for one in trials.trials] == [
            (one.values, one.changes, one.branches, one.results) for one in straight.trials
        ]
        assert trials.winner == straight.winner
    assert kills > 20


def scored(trial: int, rung: int, seed: int, branch: int, score: float, step: int) -> Event:
    found = {"score": score, "evaluations": [score], "seconds": 1.0, "step": step}
    return {"event": "scored", "trial": trial, "rung": rung, "env": ENV, "seed": seed, "branch": branch, **found}


def test_changes_at_one_step_are_one_change() -> None:
    trials = Trials([ENV], 1, 3)
    population = Population(
        settings({"kind": "pbt", "trials": 2, "kind.exploit": 0.5}), SPACE, {}, Random(SPACE, 0, 2), trials
    )
    trials.apply(population.decision() or {})
    for event in (scored(0, 0, 0, 0, 1.0, 100), scored(1, 0, 1, 0, 0.0, 100)):
        trials.apply(event)
    trials.apply(population.decision() or {})
    for event in (scored(0, 1, 0, 0, 1.0, 100), scored(1, 1, 0, 1, 2.0, 100)):  # neither has trained on
        trials.apply(event)
    trials.apply(population.decision() or {})
    first, second = trials.trials
    assert schedule(first) == {
        "learning_rate": {"piecewise": {"values": [first.values["algo.learning_rate"]], "at": [100]}}
    }
    assert second.changes == [Change(100, second.values)] and first.values != second.values
    for event in (scored(0, 2, 0, 1, 1.0, 200), scored(1, 2, 0, 1, 2.0, 200)):
        trials.apply(event)
    trials.apply(population.decision() or {})
    assert [change.step for change in first.changes] == [100, 200]


@pytest.mark.parametrize(
    ("loop", "every", "eval_every", "steps"),
    [
        ({"rollout_steps": 64}, 32, 32, [32, 160, 288, 512]),
        ({"rollout_steps": 64}, 100, 10, [100, 200, 300, 512]),
        ({"rollout_steps": 64}, 100, 96, [192, 288, 512]),
        ({}, 128, 1, [128, 256, 384, 512]),
    ],
)
def test_rungs_of_a_population_are_a_rollout_apart(
    loop: dict[str, int], every: int | None, eval_every: int, steps: list[int]
) -> None:
    trainer = {
        "total_steps": 512,
        "eval_every": eval_every,
        "eval_episodes": 1,
        "period_unit": "steps",
        "total_updates": None,
        "num_evals": None,
    }
    values = {"trainer": trainer, "env": {"num_envs": 2}, "algo": {"loop": loop}}
    assert rungs.steps(settings({"kind": "pbt", "trials": 2, "kind.every": every}), values) == steps


def test_rungs_of_a_search_may_lie_within_a_rollout() -> None:
    trainer = {
        "total_steps": 512,
        "eval_every": 1,
        "eval_episodes": 1,
        "period_unit": "steps",
        "total_updates": None,
        "num_evals": None,
    }
    values = {"trainer": trainer, "env": {"num_envs": 2}, "algo": {"loop": {"rollout_steps": 256}}}
    assert rungs.steps(settings({}), values) == [51, 154, 512]


def test_failed_trial_goes_on_from_a_good_one(tmp_path: Path) -> None:
    trials = Trials([ENV], 1, 1)
    population = Population(settings({"kind": "pbt", "trials": 3}), SPACE, {}, Random(SPACE, 0, 3), trials)
    trials.apply(population.decision() or {})
    for number, score in ((0, 0.0), (2, -1.0)):
        found = {"score": score, "evaluations": [score], "seconds": 1.0, "step": 100}
        trials.apply({"event": "scored", "trial": number, "rung": 0, "env": ENV, "seed": number, "branch": 0, **found})
    trials.apply({"event": "failed", "trial": 1, "rung": 0, "env": ENV, "seed": 1, "branch": 0, "why": "nan"})
    decision = population.decision() or {}
    assert [(one["trial"], one["source"]) for one in decision["exploits"]] == [(1, 0)]
    trials.apply(decision)
    assert [job.folder for job in trials.open_jobs()] == ["0000-Toy-s0", "0001-Toy-s0-b1", "0002-Toy-s2"]


def test_steps_and_time_of_a_copied_run_count_once(tmp_path: Path) -> None:
    trials = trained(tmp_path, random.Random(0))
    taken = totals(trials, {ENV: STEPS})
    assert taken.steps == 4 * STEPS[-1] and taken.failed == 0
    assert taken.runs == 4 + sum(len(trial.branches) for trial in trials.trials)
    for trial in trials.trials:
        (whole,) = last_results(trial).values()
        assert len(whole.evaluations) == len(STEPS)


def test_snapshots_of_runs_that_a_trial_has_left_are_removed_above_the_limit(tmp_path: Path) -> None:
    straight = trained(tmp_path / "straight", random.Random(0))
    trials = trained(tmp_path / "limited", random.Random(0), disk="1K")
    assert [trial.results for trial in trials.trials] == [trial.results for trial in straight.trials]
    kept = {path.parent.name for path in (tmp_path / "limited" / "trials").glob("*/snapshots")}
    assert kept == {job.folder for trial in trials.trials for job in trial.jobs(trials.last_rung)}
    assert any(trial.branches for trial in trials.trials)


@pytest.mark.parametrize(
    ("range", "value", "factor", "expected"),
    [
        (Uniform(0.0, 1.0), 0.5, 1.2, 0.6),
        (Log(1e-5, 1e-2), 1e-2, 1.2, 1e-2),
        (Logit(0.9, 0.999), 0.99, 0.8, 0.987531),
        (Choice((1, 2, 4)), 2, 1.2, 4),
        (Choice((1, 2, 4)), 1, 0.8, 1),
        (Choice((1, 2, 4)), 2, 1.0, 2),
    ],
)
def test_multiplied_values_stay_in_their_range(range: Any, value: Any, factor: float, expected: Any) -> None:
    assert range.multiplied(value, factor) == expected


def test_changes_of_a_trial_are_a_piecewise_schedule() -> None:
    trial = Trial(0, [], {"algo.critic.learning_rate": 0.1}, [ENV], 1)
    assert schedule(trial) == {"critic": {"learning_rate": {"piecewise": {"values": [], "at": []}}}}


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_winner_of_a_real_population_is_replayed_with_equal_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["algo=ppo", "env=CartPole", "algo.loop.rollout_steps=32", "env.num_envs=4", "trainer.total_steps=512",
             "trainer.eval_every=256", "trainer.eval_episodes=1", "network.hidden=[8]"]  # fmt: skip
    setting = [
        "kind=pbt",
        "trials=2",
        "kind.every=256",
        "kind.exploit=0.5",
        "winners=0",
        "kind.perturb=[0.1]",
        "kind.resample=0.0",
    ]
    assert main(["sweep", *words, *setting, "algo.learning_rate=log(1e-4,1e-2)"]) == 0
    assert "goes on from trial" in capsys.readouterr().out
    home = Path("runs/sweeps/ppo-CartPole")
    events = [*journal.read(home / "journal.jsonl")]
    winner = events[-1]["trial"]
    (exploit,) = next(event["exploits"] for event in events if event["event"] == "exploited")
    assert main(["sweep", "replay", str(home)]) == 0
    assert "equal to" in capsys.readouterr().out
    if winner == exploit["trial"]:
        (job,) = jobs(["algo=ppo", "env=CartPole", f"preset={home / 'best.yaml'}"])
        assert job.values["algo"]["schedule"]["learning_rate"]["piecewise"]["at"] == [256]


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["algo.gamma=logit(0.9,0.99)"], "algo.gamma: cannot change during a run, as kind=pbt needs (these can: algo."),
        (["trials=1"], "trials=1: kind=pbt needs a population of 2 to 1000"),
        (["seeds=3"], "seeds=3: kind=pbt trains one run for each trial"),
        (["trainer.total_steps=2000", "algo.loop.rollout_steps=2048"], "kind=pbt: no trial could be copied before its"),
        (["trainer.total_steps=2000", "trainer.eval_every=2000"], "kind=pbt: no trial could be copied before its"),
        (["algo.schedule={}"], "algo.schedule={}: kind=pbt writes algo.schedule itself"),
    ],
)
def test_faulty_population_has_one_line(words: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "kind=pbt", "algo=ppo", "env=CartPole", *words]) == 2
    assert fault in capsys.readouterr().err
