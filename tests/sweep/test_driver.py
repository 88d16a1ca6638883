"""Decisions of a sweep, with simulated runs that only write their files."""

import json
import math
import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlrun import files
from rlrun.cluster import Command, Ended
from rlrun.errors import NO_SPACE, ConfigError, RunError
from rlrun.formats.history import FIRST, format_fault
from rlrun.sweep import driver as driver_module
from rlrun.sweep import journal
from rlrun.sweep.disk import remove_snapshots, size_of
from rlrun.sweep.driver import Driver
from rlrun.sweep.events import apply_all
from rlrun.sweep.finals import winner, without_winner
from rlrun.sweep.journal import Event, Journal
from rlrun.sweep.pruning import pruning
from rlrun.sweep.ranges import Uniform
from rlrun.sweep.runs import Runs, RunTemplate
from rlrun.sweep.scoring import Scoring
from rlrun.sweep.search import Random
from rlrun.sweep.settings import SweepConfig, settings
from rlrun.sweep.space import Dimension, Space
from rlrun.sweep.study import Study
from rlrun.sweep.trials import FRESH, Result, RungJob, Trial, Trials

SPACE = Space([Dimension("algo.gamma", Uniform(0.0, 1.0), {})])
STEPS = [100, 300, 1000]
ENV = "FrozenLake"


class KilledError(Exception):
    """The driver is killed at this instant."""


class Simulated:
    """Runs that reach their rung after a few polls. Their score is the searched value, plus a little for each seed."""

    def __init__(
        self, rng: random.Random, faulty: Sequence[str] = (), error: str = "nan in the loss", snapshot_bytes: int = 0
    ):
        """faulty: folders of runs that fail. error: why. snapshot_bytes: of each run."""
        self.rng, self.faulty, self.error, self.snapshot_bytes = rng, faulty, error, snapshot_bytes
        self.before_ended: Callable[[], object] = lambda: None
        self.waiting: list[tuple[int, str, list[str], Path]] = []
        self.most = 0  # runs at a time
        self.steps = 0  # of all runs

    def submit(self, commands: Sequence[Command]) -> str:
        for command in commands:
            self.waiting.append((self.rng.randrange(4), *command))
        self.most = max(self.most, len(self.waiting))
        return ""

    def adopt(self, commands: Sequence[Command]) -> list[str]:
        return []

    def ended(self) -> list[Ended]:
        self.before_ended()
        later, found = [], []
        for delay, name, words, log in self.waiting:
            if delay:
                later.append((delay - 1, name, words, log))
            else:
                found.append(Ended(name, self.trained(name, words, log)))
        self.waiting = later
        return found

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        self.waiting = []

    def trained(self, name: str, words: Sequence[str], log: Path) -> int | None:
        typed = dict(word.split("=", 1) for word in words[1:])
        folder = Path(typed["run_dir"])
        folder.mkdir(exist_ok=True)
        before = 0
        if (folder / "summary.json").exists():
            before = json.loads((folder / "summary.json").read_text())["step"]
        goal = int(typed.get("trainer.stop_at", STEPS[-1]))
        self.steps += goal - before
        if self.rng.random() < 0.2:
            return -9  # killed on the way
        if name in self.faulty:
            log.write_text(f"error: {self.error}\n")
            (folder / "summary.json").write_text(json.dumps({"status": "failed", "step": 50}))
            return 1
        with (folder / "metrics.jsonl").open("a") as file:
            for step in range(before - before % 100 + 100, goal + 1, 100):
                score = float(typed["algo.gamma"]) + 0.001 * int(typed["seed"]) / step
                file.write(json.dumps({"step": step, "wall_s": 1.0, "eval/return_mean": score}) + "\n")
        if self.snapshot_bytes:
            (folder / "snapshots").mkdir(exist_ok=True)
            (folder / "snapshots" / "arrays").write_bytes(bytes(self.snapshot_bytes))
        status = "done" if goal == STEPS[-1] else "paused"
        (folder / "summary.json").write_text(json.dumps({"status": status, "step": goal}))
        return 0


class Queue(Simulated):
    """Runs that outlive the driver, as in a scheduler's queue."""

    def submit(self, commands: Sequence[Command]) -> str:
        assert not {command.name for command in commands} & {name for _, name, _, _ in self.waiting}, "twice"
        return super().submit(commands)

    def adopt(self, commands: Sequence[Command]) -> list[str]:
        waiting = {name for _, name, _, _ in self.waiting}
        return [command.name for command in commands if command.name in waiting]

    def close(self) -> None:
        pass


def swept(folder: Path, cluster: Simulated, kill: random.Random | None = None, **changes: Any) -> tuple[Trials, Driver]:
    """Runs a sweep in a folder to its end, or from where it was. kill: decides after which events the driver dies."""
    base = {
        "trials": 18,
        "seeds": 2,
        "order": "generation",
        "winners": 2,
        "fresh_seeds": 3,
        "workers": 3,
    }
    cfg: SweepConfig = settings(base | changes)
    steps = [STEPS[-1]] if cfg.prune.name == "none" else STEPS
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    trials = apply_all(Trials([ENV], cfg.seeds, len(steps) - 1), journal.read(folder / "journal.jsonl"), cfg, SPACE)

    def say(event: Event, trials: Trials) -> None:
        if kill is not None and kill.random() < 0.1:
            raise KilledError

    templates = {ENV: RunTemplate(["algo=q_learning", f"env={ENV}"], steps)}
    runs = Runs(folder / "trials", templates, cfg.metric, Scoring(cfg, [ENV]))
    study = Study(cfg, SPACE, {}, Random(SPACE, 0, cfg.trials), pruning(cfg.prune), trials)
    driver = Driver(study, trials, Journal(folder / "journal.jsonl"), runs, cluster, cfg, say)
    try:
        driver.run()
    finally:
        driver.close()
    return trials, driver


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "POLL_S", 0.0)
    monkeypatch.setattr(driver_module, "ATTEMPTS", 50)


def table(trials: Trials) -> list[Any]:
    return [
        (one.number, one.values, one.rung, one.seeds_started, sorted(one.results.items()), one.failures)
        for one in trials.trials
    ]


def test_sweep_finds_the_best_trial_and_measures_it_with_fresh_seeds(tmp_path: Path) -> None:
    trials, _ = swept(tmp_path, Simulated(random.Random(0)))
    best = max(trials.trials, key=lambda trial: trial.values["algo.gamma"])
    assert trials.winner == best.number and best.rung == trials.last_rung
    measured = [one for one in trials.trials if one.fresh_seeds]
    assert len(measured) == 2 and best.has_results(RungJob(best.number, 2, ENV, FRESH + i) for i in range(3))
    assert not trials.open_jobs()


def test_run_that_reaches_outside_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(runs: Runs, job: RungJob, trial: Trial) -> None:
        raise ConfigError("plugins: imports code")

    monkeypatch.setattr(Runs, "check", refused)
    cluster = Simulated(random.Random(0))
    with pytest.raises(ConfigError, match="plugins: imports code"):
        swept(tmp_path, cluster)
    assert cluster.most == 0


def test_asha_trains_one_of_eta_trials_on_and_uses_few_steps(tmp_path: Path) -> None:
    pruned, whole = Simulated(random.Random(0)), Simulated(random.Random(0))
    trials, _ = swept(tmp_path / "asha", pruned, trials=9, seeds=1, winners=0)
    assert sorted(one.rung for one in trials.trials) == [0] * 6 + [1] * 2 + [2]
    swept(tmp_path / "none", whole, trials=9, seeds=1, winners=0, prune="none")
    assert pruned.steps < 0.4 * whole.steps


def test_median_pauses_the_trials_below_it(tmp_path: Path) -> None:
    trials, _ = swept(tmp_path, Simulated(random.Random(0)), trials=9, winners=0, prune="median")
    ranked = sorted(trials.trials, key=lambda one: -one.values["algo.gamma"])
    assert [one.rung for one in ranked] == [2, 2, 2, 1, 1, 0, 0, 0, 0]


def test_generations_decide_alike_with_any_number_of_workers(tmp_path: Path) -> None:
    tables = []
    for workers in (1, 2, 7):
        cluster = Simulated(random.Random(workers))
        trials, _ = swept(tmp_path / str(workers), cluster, workers=workers)
        assert cluster.most == workers
        tables.append((table(trials), trials.winner))
    assert tables[0] == tables[1] == tables[2]


def test_driver_that_is_killed_at_random_instants_loses_and_doubles_nothing(tmp_path: Path) -> None:
    straight, _ = swept(tmp_path / "straight", Simulated(random.Random(0)))
    kills = 0
    for seed in range(10):
        rng = random.Random(seed)
        while True:
            try:
                trials, _ = swept(tmp_path / str(seed), Simulated(rng), kill=rng)
                break
            except KilledError:
                kills += 1
                with (tmp_path / str(seed) / "journal.jsonl").open("ab") as file:
                    file.write(b'{"event": "scored", "tr'[: rng.randrange(24)])  # half a line
        assert (table(trials), trials.winner) == (table(straight), straight.winner)
    assert kills > 50


def test_queued_runs_of_a_killed_driver_are_adopted_by_the_next(tmp_path: Path) -> None:
    straight, _ = swept(tmp_path / "straight", Simulated(random.Random(0)))
    adopted = 0
    for seed in range(5):
        rng = random.Random(seed)
        queue = Queue(rng)
        while True:
            adopted += len(queue.waiting)
            try:
                trials, _ = swept(tmp_path / str(seed), queue, kill=rng)
                break
            except KilledError:
                pass
        assert (table(trials), trials.winner) == (table(straight), straight.winner)
    assert adopted > 20


def test_free_order_keeps_all_workers_busy_and_promotes_as_results_come(tmp_path: Path) -> None:
    cluster = Simulated(random.Random(0))
    trials, _ = swept(tmp_path, cluster, order="free", workers=4)
    assert len(trials) == 18 and cluster.most == 4
    kinds = [event["event"] for event in journal.read(tmp_path / "journal.jsonl")]
    assert kinds.index("promoted") < len(kinds) - 1 - kinds[::-1].index("asked"), "before the last trial starts"
    asked = [event for event in journal.read(tmp_path / "journal.jsonl") if event["event"] == "asked"]
    assert all(len(event["values"]) == 1 for event in asked)


def test_failed_run_makes_its_trial_the_worst_and_says_why(tmp_path: Path) -> None:
    trials, _ = swept(tmp_path, Simulated(random.Random(0), faulty=["0001-FrozenLake-s0"]), trials=9)
    assert trials.trials[1].failures == {"0001-FrozenLake-s0": "nan in the loss"}
    assert trials.trials[1].rung == 0 and trials.winner != 1
    assert 1 not in [trial.number for trial in trials.best()]


def test_sweep_whose_finalists_all_fail_on_fresh_seeds_has_no_winner(tmp_path: Path) -> None:
    faulty = [f"{number:04}-{ENV}-s{FRESH + 1}" for number in range(18)]
    trials, _ = swept(tmp_path, Simulated(random.Random(0), faulty=faulty))
    assert trials.finals_have_begun and trials.winner is None and not trials.open_jobs()
    why = without_winner(trials)
    assert re.fullmatch(r"no winner, because .* failed on fresh seeds \(00..-FrozenLake-s1001: nan in the loss\)", why)
    best, *_ = trials.best()
    assert best.fresh_seeds and best.score(trials.last_rung) == max(
        trial.score(trials.last_rung) or 0 for trial in trials.best()
    )
    again, _ = swept(tmp_path, Simulated(random.Random(0)))
    assert again.winner is None, "the same command trains nothing again"


def test_unknown_metric_fails_with_the_names_of_known_ones(tmp_path: Path) -> None:
    trials, _ = swept(tmp_path, Simulated(random.Random(0)), metric="eval/return")
    (why,) = trials.trials[0].failures.values()
    assert why == "no evaluation has eval/return (there are: eval/return_mean)"


ROW = {"step": 100, "wall_s": 1.0, "eval/return_mean": 0.5}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (ROW | {"eval/return_mean": math.nan}, "metrics.jsonl: eval/return_mean at step 100 is not a finite number"),
        (ROW | {"eval/return_mean": math.inf}, "is not a finite number"),
        (ROW | {"eval/return_mean": 10**400}, "is not a finite number"),
        (ROW | {"eval/return_mean": "x"}, "is not a finite number"),
        (ROW | {"wall_s": math.nan}, "wall_s at step 100 is not a finite number of seconds"),
        (ROW | {"wall_s": -1.0}, "wall_s"),
        ({"step": 100, "eval/return_mean": 0.5}, "wall_s"),
        (ROW | {"step": -5}, "line 1 is not a log row"),
        (ROW | {"step": 10**400}, "line 1 is not a log row"),
        (ROW | {"step": 1.5}, "line 1 is not a log row"),
        ("[" * 100_000, "line 1 is not a log row"),
        (None, "No such file"),
        ("pipe", "is a pipe"),
    ],
)
def test_trial_with_a_damaged_row_fails_and_the_others_go_on(row: Any, why: str, tmp_path: Path) -> None:
    cluster = Simulated(random.Random(0))
    trained = cluster.trained

    def damaged(name: str, words: Sequence[str], log: Path) -> int | None:
        code = trained(name, words, log)
        rows = tmp_path / "trials" / name / "metrics.jsonl"
        if name.startswith("0001") and rows.exists():
            rows.unlink()
            if row == "pipe":
                os.mkfifo(rows)
            elif row is not None:
                rows.write_text((row if isinstance(row, str) else json.dumps(row)) + "\n")
        return code

    cluster.trained = damaged  # type: ignore[method-assign]
    trials, _ = swept(tmp_path, cluster, trials=3, seeds=1, winners=0, prune="none", normalize={ENV: [0, 1]})
    (found,) = trials.trials[1].failures.values()
    assert why in found and not trials.trials[0].failed and trials.winner is not None
    assert table(
        swept(
            tmp_path, Simulated(random.Random(0)), trials=3, seeds=1, winners=0, prune="none", normalize={ENV: [0, 1]}
        )[0]
    ) == table(trials)


def test_run_is_still_open_if_its_summary_has_no_number_of_steps(tmp_path: Path) -> None:
    templates = {ENV: RunTemplate([], STEPS)}
    runs = Runs(tmp_path, templates, "eval/return_mean", Scoring(settings({}), [ENV]))
    run = tmp_path / RungJob(0, 0, ENV, 0).folder
    run.mkdir()
    for step in ("x", None, -1, math.nan, 10**90):
        (run / "summary.json").write_text(json.dumps({"status": "paused", "step": step}))
        assert runs.outcome(RungJob(0, 0, ENV, 0)) is None


def test_score_that_overflows_is_a_failure(tmp_path: Path) -> None:
    templates = {ENV: RunTemplate([], STEPS)}
    runs = Runs(tmp_path, templates, "eval/return_mean", Scoring(settings({"normalize": {ENV: [0, 1e-300]}}), [ENV]))
    run = tmp_path / RungJob(0, 0, ENV, 0).folder
    run.mkdir()
    (run / "summary.json").write_text('{"status": "done"}')
    (run / "metrics.jsonl").write_text(json.dumps(ROW | {"eval/return_mean": 1e10}) + "\n")
    outcome = runs.outcome(RungJob(0, 0, ENV, 0))
    assert outcome is not None and outcome.why == "its score, inf, is not a finite number"


def test_journal_refuses_a_line_that_it_could_not_read(tmp_path: Path) -> None:
    book = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(RunError, match=r"an event of 1,048,6\d\d bytes; the limit is 1,048,576"):
        book.append({"event": "failed", "why": "x" * 2**20})
    book.close()
    assert [*journal.read(tmp_path / "journal.jsonl")] == []


def test_journal_that_grows_while_it_is_read_is_read_up_to_its_last_complete_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    path.touch()
    pieces = [b'{"event": "a"}\n', b'{"event": ', b'"b"}\n']  # the second piece was the end of the file
    monkeypatch.setattr(files, "read_lines", lambda _: iter(pieces))
    assert [*journal.read(path)] == [{"event": "a"}]


def test_run_that_is_always_killed_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "ATTEMPTS", 3)
    cluster = Simulated(random.Random(0))
    monkeypatch.setattr(cluster, "trained", lambda *_: -9)
    trials, driver = swept(tmp_path, cluster, trials=1, seeds=1, prune="none")
    assert trials.trials[0].failures == {
        "0000-FrozenLake-s0": "its process was killed 3 times, the last time with exit code -9"
    }
    assert trials.winner is None and driver.attempts[RungJob(0, 0, ENV, 0)] == 3


def test_journal_on_a_full_disk_stops_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Journal(tmp_path / "journal.jsonl")
    book.append({"event": "asked", "values": [{}]})
    monkeypatch.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="no space left on the disk"):
        book.append({"event": "promoted", "trials": [0]})
    book.close()
    assert [event["event"] for event in journal.read(tmp_path / "journal.jsonl")] == ["asked"]


def test_no_run_starts_after_the_hours_but_those_that_measure_the_best_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**6, 60))
    monkeypatch.setattr(driver_module.time, "monotonic", lambda: float(next(clock)))
    trials, _ = swept(tmp_path, Simulated(random.Random(0)), hours=1.0, order="free", seeds=1)
    events = [*journal.read(tmp_path / "journal.jsonl")]
    kinds = [event["event"] for event in events]
    after = kinds[kinds.index("time_is_up") + 1 :]
    assert {*after} == {"scored", "measured_again", "won"} and 0 < len(trials) < 18
    assert next(event["at"] for event in events if event["event"] == "time_is_up") > 3600
    times = [event["at"] for event in events]
    assert times == sorted(times)


def test_snapshots_of_trials_that_fell_behind_are_removed_above_the_limit(tmp_path: Path) -> None:
    cluster = Simulated(random.Random(0), snapshot_bytes=1000)
    trials, driver = swept(tmp_path, cluster, order="free", disk="12K", winners=1)
    kept = {path.parent.name for path in (tmp_path / "trials").glob("*/snapshots")}
    assert 0 < len(kept) < 10 and size_of(tmp_path / "trials") < 30_000
    best = trials.best()[0]
    assert {driver.runs.path(job).name for job in best.jobs(best.rung)} <= kept
    straight, _ = swept(tmp_path / "straight", Simulated(random.Random(0)), order="free", winners=1)
    assert trials.winner == straight.winner


def test_snapshots_behind_a_link_are_not_removed(tmp_path: Path) -> None:
    job = RungJob(0, 0, ENV, 0)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "snapshots").mkdir(parents=True)
    (elsewhere / "snapshots" / "LATEST").write_text("best")
    trials = tmp_path / "trials"
    trials.mkdir()
    (trials / job.folder).symlink_to(elsewhere)
    (trials / "log").write_text("more than a byte")
    remove_snapshots(Runs(trials, {}, "", Scoring(settings({}), [])), [job], limit=1)
    assert (elsewhere / "snapshots" / "LATEST").exists()


def test_stopped_driver_goes_on_later(tmp_path: Path) -> None:
    cluster = Simulated(random.Random(0))
    stopped = iter([False] * 30 + [True])
    cluster.before_ended = lambda: next(stopped, False) and (tmp_path / "trials" / driver_module.STOP).touch()
    with pytest.raises(KeyboardInterrupt):
        swept(tmp_path, cluster)
    trials, _ = swept(tmp_path, Simulated(random.Random(0)))
    straight, _ = swept(tmp_path / "straight", Simulated(random.Random(0)))
    assert (table(trials), trials.winner) == (table(straight), straight.winner)


def test_run_on_a_full_disk_pauses_the_sweep_and_is_not_recorded_as_failed(tmp_path: Path) -> None:
    full = Simulated(random.Random(0), faulty=["0001-FrozenLake-s0"], error=f"trials/x: {NO_SPACE}")
    with pytest.raises(RunError, match=r"0001-FrozenLake-s0: .*no space left on the disk"):
        swept(tmp_path, full)
    assert "failed" not in [event["event"] for event in journal.read(tmp_path / "journal.jsonl")]
    trials, _ = swept(tmp_path, Simulated(random.Random(0)))
    assert not any(trial.failures for trial in trials.trials)


def test_run_of_an_earlier_format_stops_the_sweep_and_is_not_recorded_as_failed(tmp_path: Path) -> None:
    fault = f"trials/x/config.yaml: {format_fault(FIRST - 1)}"
    earlier = Simulated(random.Random(0), faulty=["0001-FrozenLake-s0"], error=fault)
    with pytest.raises(ConfigError, match=rf"^{fault}$"):
        swept(tmp_path, earlier)
    assert "failed" not in [event["event"] for event in journal.read(tmp_path / "journal.jsonl")]


def test_open_jobs_are_the_furthest_first() -> None:
    trials = Trials([ENV], seeds=2, last_rung=2)
    trials.apply({"event": "asked", "points": [[], []], "values": [{}, {}]})
    trials.apply({"event": "another_seed", "trials": [0, 1]})
    for seed in range(2):
        found = {
            "rung": 0,
            "env": ENV,
            "seed": seed,
            "branch": 0,
            "score": 1.0,
            "evaluations": [1.0],
            "seconds": 2.0,
            "step": 100,
        }
        trials.apply({"event": "scored", "trial": 1, **found})
    trials.apply({"event": "promoted", "trials": [1]})
    furthest_first = [(1, 1, 0), (1, 1, 1), (0, 0, 0), (0, 0, 1)]
    assert [(job.trial, job.rung, job.seed) for job in trials.open_jobs()] == furthest_first
    assert trials.trials[1].score(0) == 1.0 and trials.trials[1].score(1) is None


def test_winner_has_the_best_score_on_fresh_seeds_also_if_it_is_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials, _ = swept(tmp_path, Simulated(random.Random(0)))
    for trial, score in zip([one for one in trials.trials if one.fresh_seeds], (-1.0, 0.0), strict=True):
        for job in trial.fresh_jobs():
            trial.results[job] = Result(score, [score], 1.0, 1000)
        best = trial.number
    assert winner(trials) == {"event": "won", "trial": best}


def test_journal_with_a_broken_line_in_the_middle_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event": "won", "trial": 0}\nx\n{"event": "time_is_up"}\n')
    with pytest.raises(ConfigError, match="line 2 cannot be read"):
        list(journal.read(path))
    with pytest.raises(ConfigError, match="line 2 cannot be read"):
        Journal(path)
    assert len(path.read_bytes().splitlines()) == 3


def test_journal_that_ends_with_a_whole_foreign_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"event": "time_is_up"}\nfoo\n')
    with pytest.raises(ConfigError, match="line 2 cannot be read"):
        list(journal.read(tmp_path / "journal.jsonl"))


def test_trials_that_are_significantly_worse_get_no_further_seed(tmp_path: Path) -> None:
    trials, _ = swept(tmp_path, Simulated(random.Random(0)), trials=9, seeds=3, winners=0, prune="none")
    best = max(trials.trials, key=lambda trial: trial.values["algo.gamma"])
    assert [(one.seeds_started, one.ruled_out) for one in trials.trials if one is not best] == [(1, True)] * 8
    assert (best.seeds_started, best.ruled_out, trials.winner) == (3, False, best.number)
