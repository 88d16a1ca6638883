"""The times at which the trainer writes rows, evaluates, writes snapshots, and ends."""

import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from rlrun.config.schema import StopWhenConfig, TrainerConfig
from rlrun.core.accumulator import Accumulator
from rlrun.core.clock import Clock
from rlrun.core.state import Optim
from rlrun.errors import RunError, SnapshotError
from rlrun.run.counts import Counts
from rlrun.run.evaluation import EvaluationInterruptedError
from rlrun.run.signals import Signals
from rlrun.run.trainer import Trainer, learning_rate_name
from rlrun.snapshot.store import step_name
from rlrun.types import Episode


@pytest.mark.parametrize(
    ("period", "before", "after", "expected"),
    [
        (10, 0, 9, False),
        (10, 9, 10, True),
        (10, 10, 19, False),
        (10, 8, 12, True),  # a tick may jump over the multiple
        (10, 5, 47, True),
        (1, 3, 4, True),
        (0, 0, 100, False),  # never
    ],
)
def test_is_due_when_a_multiple_of_the_period_was_reached(period: int, before: int, after: int, expected: bool) -> None:
    for unit in ("steps", "updates", "episodes"):
        assert Counts(**{unit: after}).is_due(period, unit, Counts(**{unit: before})) == expected


NEVER = StopWhenConfig(metric="eval/return_mean", at_least=None, at_most=None, times=1, plateau=None, hours=None)


class Run(nn.Module):
    """A simulated loop with `stride` steps per tick, one episode each, that records all calls."""

    def __init__(self, stride: int = 4, **config: Any):
        super().__init__()
        self.stride, self.steps, self.updates, self.objective = stride, 0, 0, None
        self.clock, self.notices = Clock(), []
        self.env_parameters: Callable[[], dict[str, float]] = dict
        self.metrics = Accumulator()
        self.env = SimpleNamespace(device=torch.device("cpu"), reports_success=False)
        self.agent = SimpleNamespace(report=lambda: {"epsilon": torch.tensor(0.5)})
        self.schedules = SimpleNamespace(report=dict)
        self.optim = Optim([nn.Parameter(torch.zeros(2))], 0.1)
        self.rows: list[dict[str, float]] = []
        self.messages: list[str] = []
        self.saved: list[str] = []
        self.evaluated: list[int] = []
        self.scores = iter([1.0, 3.0, 2.0, 5.0, 0.0, 0.0, 0.0])
        base = {
            "total_steps": 40, "total_updates": None, "stop_at": None, "period_unit": "steps", "stop_when": NEVER,
            "eval_every": 0, "num_evals": None, "eval_episodes": 1, "eval_max_steps": 1, "eval_envs": None,
            "eval_sampled": 0.0, "eval_beside": False, "log_every": 1000, "num_rows": None, "min_episodes": 1,
            "measure_after": 0,
            "snapshot_every": 0, "num_snapshots": None,
            "snapshot_keep": 1, "snapshot_archive_every": 0, "snapshot_replay": True,
            "snapshot_on_failure": "continue", "snapshot_at_crash": "never",
            "engine": "auto", "precision": "fp32", "threads": None,
        }  # fmt: skip
        self.trainer = Trainer(TrainerConfig(**(base | config)), self, self, self.evaluate, self)  # type: ignore[arg-type]

    def tick(self) -> dict[str, torch.Tensor]:
        self.steps += self.stride
        self.updates += 1
        self.metrics.episodes.append(Episode(float(self.steps), self.stride))
        metrics = {"loss/critic": torch.tensor(float(self.steps))} if self.updates % 2 else {}
        self.metrics.add(metrics)
        return metrics

    def fetch_episodes(self) -> None: ...

    def set_parameters(self) -> None: ...

    def evaluate(self, step: int) -> dict[str, float]:
        self.evaluated.append(step)
        return {"eval/return_mean": next(self.scores)}

    def save(self, names: list[str], state: dict[str, Any], clocks: dict[str, float]) -> None:
        self.saved += names

    def flush(self) -> None: ...

    def wait(self) -> None: ...

    def row(self, values: dict[str, float]) -> None:
        self.rows.append(values)

    def progress(self, step: int) -> None:
        pass

    def message(self, text: str) -> None:
        self.messages.append(text)

    def run(self) -> str:
        return self.trainer.run(Signals())


def test_a_run_ends_at_the_first_tick_past_its_total_with_one_evaluation_and_one_snapshot() -> None:
    run = Run(stride=7, total_steps=40)
    assert run.run() == "done"
    assert run.steps == 42
    assert run.evaluated == [42]
    assert run.saved == ["best", "step_000000042"]
    assert [row["step"] for row in run.rows] == [42]


def test_rows_evaluations_and_snapshots_come_at_their_periods() -> None:
    run = Run(stride=4, total_steps=40, eval_every=12, log_every=10, snapshot_every=16)
    run.run()
    assert run.evaluated == [12, 24, 36, 40]
    assert [row["step"] for row in run.rows] == [12, 20, 24, 32, 36, 40]
    assert [name for name in run.saved if name != "best"] == ["step_000000016", "step_000000032", "step_000000040"]


def test_snapshots_of_a_number_are_spread_evenly_and_end_with_the_run() -> None:
    run = Run(stride=1, total_steps=10, num_snapshots=4, snapshot_every=2)
    run.run()
    assert [name for name in run.saved if name != "best"] == [step_name(step) for step in (3, 5, 8, 10)]
    run = Run(stride=4, total_steps=400, total_updates=10, num_snapshots=3)
    run.run()
    assert [name for name in run.saved if name != "best"] == [step_name(4 * updates) for updates in (4, 7, 10)]
    run = Run(stride=7, total_steps=40, num_snapshots=40)
    run.run()
    assert [name for name in run.saved if name != "best"] == [step_name(step) for step in (7, 14, 21, 28, 35, 42)]


def test_a_run_without_evaluations_has_rows_and_snapshots() -> None:
    run = Run(stride=4, total_steps=12, eval_every=4, eval_episodes=0, log_every=8, snapshot_every=4)
    run.run()
    assert run.evaluated == [] and [row["step"] for row in run.rows] == [8, 12]
    assert run.saved == [step_name(step) for step in (4, 8, 12)]


def test_evaluations_and_rows_of_a_number_are_spread_evenly_and_end_with_the_run() -> None:
    run = Run(stride=1, total_steps=10, num_evals=3, num_rows=4, eval_every=1, log_every=1)
    run.run()
    assert run.evaluated == [4, 7, 10]
    assert [row["step"] for row in run.rows] == [3, 4, 5, 7, 8, 10]
    run = Run(stride=7, total_steps=40, num_evals=2)
    run.run()
    assert run.evaluated == [21, 42]


def test_returns_are_logged_once_enough_episodes_have_ended() -> None:
    """An episode ends with every tick; its return is the number of steps."""
    run = Run(stride=1, total_steps=7, log_every=1, min_episodes=3)
    run.run()
    assert [row["train/episodes"] for row in run.rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [row.get("train/return_mean") for row in run.rows] == [None, None, 2.0, None, None, 5.0, None]
    assert run.rows[5]["train/return_smooth"] == 3.5


def test_run_ends_after_its_updates_if_they_come_before_its_steps() -> None:
    run = Run(stride=4, total_steps=40, total_updates=3)
    assert run.run() == "done" and run.trainer.stop_reason == "it made 3 updates"
    assert (run.steps, run.evaluated, run.saved) == (12, [12], ["best", "step_000000012"])
    assert [row["train/updates"] for row in run.rows] == [3]
    run = Run(stride=4, total_steps=8, total_updates=3)
    assert run.run() == "done" and run.trainer.stop_reason is None and run.updates == 2


@pytest.mark.parametrize(("unit", "each"), [("updates", 1), ("episodes", 2)])
def test_periods_may_be_in_updates_and_in_episodes(unit: str, each: int) -> None:
    class Twice(Run):
        def tick(self) -> dict[str, torch.Tensor]:
            self.metrics.episodes.append(Episode(0.0, 2))
            return super().tick()

    run = Twice(
        stride=4, total_steps=40, period_unit=unit, eval_every=3 * each, log_every=2 * each, snapshot_every=4 * each
    )
    run.run()
    assert run.evaluated == [12, 24, 36, 40]
    assert [row["step"] for row in run.rows] == [8, 12, 16, 24, 32, 36, 40]
    assert [name for name in run.saved if name != "best"] == ["step_000000016", "step_000000032", "step_000000040"]


def test_trainer_without_snapshots_saves_nothing() -> None:
    run = Run(stride=4, total_steps=40, eval_every=12, snapshot_every=None)
    assert run.run() == "done" and run.trainer.progress.best_return is not None
    assert run.saved == []


def test_a_run_without_evaluation_has_rows_and_no_best() -> None:
    run = Run(stride=10, eval_episodes=0, eval_every=10, log_every=20)
    assert run.run() == "done"
    assert run.evaluated == [] and run.saved == ["step_000000040"]
    assert [row["step"] for row in run.rows] == [20, 40]
    assert (run.trainer.progress.final_return, run.trainer.progress.best_return) == (None, None)


def test_evaluation_and_log_due_together_make_one_row() -> None:
    run = Run(stride=4, total_steps=8, eval_every=8, log_every=8)
    run.run()
    assert [row["step"] for row in run.rows] == [8]
    assert {"eval/return_mean", "loss/critic", "train/return_mean"} <= run.rows[0].keys()


def test_the_best_snapshot_stays_at_the_first_of_equal_evaluations() -> None:
    run = Run(stride=4, total_steps=8, eval_every=4)
    run.scores = iter([3.0, 3.0])
    run.run()
    assert run.saved == ["best", "step_000000008"] and run.trainer.progress.best_step == 4


def test_the_best_snapshot_moves_only_when_an_evaluation_beats_it() -> None:
    run = Run(stride=4, total_steps=20, eval_every=4)
    run.run()
    assert run.saved == ["best", "best", "best", "step_000000020"]  # of scores 1, 3, 2, 5, 0
    progress = run.trainer.progress
    assert (progress.best_return, progress.best_step, progress.final_return) == (5.0, 16, 0.0)


def test_metrics_row_covers_episodes_since_the_last_row() -> None:
    run = Run(stride=4, total_steps=16, log_every=8)
    run.run()
    assert [row["train/return_mean"] for row in run.rows] == [6.0, 14.0]
    assert [row["train/length_mean"] for row in run.rows] == [4.0, 4.0]
    assert [row["train/return_smooth"] for row in run.rows] == [6.0, 10.0]
    assert [row["train/episodes"] for row in run.rows] == [2, 4]
    assert not any("train/success_rate" in row for row in run.rows), "without reported success there is no rate"
    spread = {"return_std": 2.0, "return_min": 12.0, "return_max": 16.0, "return_median": 14.0}
    assert {name: run.rows[1][f"train/{name}"] for name in spread} == spread


def test_a_row_holds_what_the_agent_reports() -> None:
    run = Run(stride=4, total_steps=8, log_every=8)
    run.run()
    assert run.rows[0]["train/epsilon"] == 0.5


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("agent.optim", "learning_rate"),
        ("agent.actor_optim", "actor_learning_rate"),
        ("agent.critic.optim", "critic_learning_rate"),
        ("agent.particles.1.optim.optim", "particles_learning_rate"),
    ],
)
def test_learning_rates_are_named_after_the_optimisers(path: str, name: str) -> None:
    assert learning_rate_name(path) == name


def test_success_metrics_are_those_of_the_episodes_since_the_last_row() -> None:
    run = Run(stride=4, total_steps=24, log_every=8)
    reports: Any = iter([(None, None), (None, None), (None, None), (1.0, 0.5), (0.0, 0.25), (0.0, 0.0)])

    def tick() -> dict[str, torch.Tensor]:
        run.steps += run.stride
        run.metrics.episodes.append(Episode(0.0, 4, 0, True, *next(reports)))
        return {}

    run.tick = tick  # type: ignore[method-assign]
    run.env.reports_success = True
    run.run()
    rates = [(row.get("train/success_rate"), row.get("train/success_fraction")) for row in run.rows]
    assert rates == [(None, None), (0.5, 0.25), (0.0, 0.125)]
    assert run.rows[-1]["eval/success_rate"] == 0.0, "no episode of the evaluation reported success"


def test_rows_hold_means_over_episodes_of_the_infos_of_their_last_steps() -> None:
    run = Run(stride=4, total_steps=8)
    for infos in (None, {"energy": 1.0}, {"energy": 3.0, "goal": 5.0}):
        run.metrics.episodes.append(Episode(0.0, 4, infos=infos))
    run.run()
    assert run.rows[-1]["custom/energy_last_step"] == 2.0
    assert run.rows[-1]["custom/goal_last_step"] == 5.0


def test_rows_hold_the_values_of_scheduled_environment_parameters() -> None:
    run = Run(stride=4, total_steps=8)
    run.env_parameters = lambda: {"gravity": 9.0 + run.steps}
    run.run()
    assert [row["train/env.gravity"] for row in run.rows] == [17.0]


def test_a_row_holds_the_means_of_the_updates_since_the_last_row_and_the_speeds() -> None:
    run = Run(stride=4, total_steps=24, log_every=12)
    run.run()
    assert [row["loss/critic"] for row in run.rows] == [(4 + 12) / 2, 20.0]  # every other tick makes none
    assert {"time/steps_per_s", "time/updates_per_s", "time/share_log", "sys/rss_mb"} <= run.rows[0].keys()
    assert 0 < run.rows[0]["wall_s"] < run.rows[1]["wall_s"] < 1


def test_restarts_are_logged_once() -> None:
    class Breaks(Run):
        def tick(self) -> dict[str, torch.Tensor]:
            if self.steps == 4:
                self.notices.append("env #1: its worker died; restarted with seed 3")
            return super().tick()

    run = Breaks(stride=4, total_steps=16)
    run.run()
    assert run.messages == ["env #1: its worker died; restarted with seed 3"]


def test_a_finished_run_is_done_without_a_tick() -> None:
    run = Run(total_steps=8)
    run.steps = 8
    run.trainer.progress.logged_until = Counts(steps=8)
    assert run.run() == "done"
    assert (run.updates, run.rows, run.saved) == (0, [], [])


@pytest.mark.parametrize("device", ["cpu", "cuda"])  # of the environments; on a GPU only rows and snapshots look
def test_numbers_that_are_not_finite_stop_the_run_before_anything_is_saved(device: str) -> None:
    run = Run(stride=4, log_every=4, snapshot_every=4)
    run.env.device = torch.device(device)
    run.optim.apply(torch.full((2,), float("nan")))
    with pytest.raises(RunError, match=r"^optim: .* not finite .* step 4; this optimiser has changed no weight since"):
        run.run()
    assert not run.saved and not run.rows


def test_failed_write_of_the_last_snapshot_is_raised() -> None:
    class Full(Run):
        def wait(self) -> None:
            if self.saved:
                raise SnapshotError("no space left")

    with pytest.raises(SnapshotError, match="no space left"):
        Full(stride=4, total_steps=8).run()


def test_interrupted_evaluation_is_repeated_after_the_resume() -> None:
    run, resumed = (Run(stride=4, total_steps=12, eval_every=8) for _ in range(2))

    def interrupt(step: int) -> dict[str, float]:
        raise EvaluationInterruptedError

    run.trainer.evaluate = interrupt
    assert run.run() == "stopped"
    assert run.steps == 8 and run.saved == ["step_000000008"] and not run.rows
    resumed.trainer.load(run.trainer.state(), {"wall_s": 0.0})
    resumed.steps, resumed.episodes = run.steps, run.metrics.episodes
    assert resumed.run() == "done"
    assert [row["step"] for row in resumed.rows] == [8, 12]
    assert [row["train/episodes"] for row in resumed.rows] == [2, 3]
    assert resumed.evaluated == [8, 12]


def test_trainer_state_round_trips_progress() -> None:
    run, other = Run(stride=4, total_steps=20, eval_every=4), Run(stride=4, total_steps=40, eval_every=4)
    run.run()
    state = run.trainer.state()
    other.trainer.load(dict(state), {"wall_s": 12.5})
    assert other.trainer.progress == run.trainer.progress
    assert other.trainer.elapsed() >= 12.5
    assert state["trainer._extra_state"]["progress"]["settled"] == {"steps": 20, "updates": 5, "episodes": 5}


# --- signals ---------------------------------------------------------------------------------------------------------

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 143, signal.SIGUSR2: 143}


@pytest.mark.parametrize(("number", "code"), CODES.items(), ids=[number.name for number in CODES])
def test_a_signal_lets_the_tick_finish_and_leaves_a_snapshot(number: signal.Signals, code: int) -> None:
    earlier = signal.signal(number, signal.SIG_IGN)
    try:
        run = Run(stride=4, total_steps=40)
        tick = run.tick

        def disturbed() -> Any:
            metrics = tick()
            if run.steps == 12:
                signal.raise_signal(number)
            return metrics

        run.tick = disturbed  # type: ignore[method-assign]
        with Signals() as signals:
            assert run.trainer.run(signals) == "stopped"
        assert signals.exit_code == code
        assert run.steps == 12 and run.saved == ["step_000000012"]
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, earlier)


def test_a_signal_in_the_last_tick_does_not_undo_the_end() -> None:
    run = Run(stride=8, total_steps=8)
    signals = Signals()
    signals.all.append(signal.SIGTERM)
    assert run.trainer.run(signals) == "done"


def test_second_signal_exits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr("os._exit", left.append)
    earlier = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Signals():
            signal.raise_signal(signal.SIGTERM)
            assert not left
            signal.raise_signal(signal.SIGTERM)
            assert left == [143]
    finally:
        signal.signal(signal.SIGTERM, earlier)


def test_an_earlier_handler_comes_back_and_is_called_after_the_snapshot() -> None:
    called: list[int] = []
    earlier = signal.signal(signal.SIGUSR1, lambda number, frame: called.append(number))
    try:
        mine = signal.getsignal(signal.SIGUSR1)
        with Signals():
            signal.raise_signal(signal.SIGUSR1)
            assert not called
        assert called == [signal.SIGUSR1]
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, earlier)


@pytest.mark.parametrize("read", [1, 2, 3])
def test_a_signal_at_any_instant_of_a_tick_stops_the_run_with_a_snapshot_of_where_it_stopped(read: int) -> None:
    class Late(Signals):
        """A signal that arrives between two checks of the trainer."""

        looks = 0

        @property
        def received(self) -> signal.Signals | None:
            self.looks += 1
            return signal.SIGTERM if self.looks > read else None

        @received.setter
        def received(self, value: signal.Signals | None) -> None:
            pass

    run = Run(stride=4, total_steps=400)
    assert run.trainer.run(Late()) == "stopped"
    assert run.saved == [f"step_{run.steps:09d}"]
