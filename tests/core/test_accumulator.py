"""Metrics between two log rows: means of updates, measures of environments, and the state of both."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from toys import toy

from rlrun.core.accumulator import Accumulator, epoch_metrics
from rlrun.types import Episode


def numbers(metrics: Mapping[str, torch.Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def test_means_divide_each_metric_by_its_own_count() -> None:
    metrics = Accumulator()
    for critic in (1.0, 2.0, 6.0):
        metrics.add({"loss/critic": torch.tensor(critic)})
    metrics.add({"loss/actor": torch.tensor(5.0)})
    assert numbers(metrics.drain()) == {"loss/critic": 3.0, "loss/actor": 5.0}
    assert metrics.drain() == {}


def test_means_do_not_hold_the_tensors_of_an_update() -> None:
    metrics, reused = Accumulator(), torch.tensor(1.0)
    metrics.add({"loss/critic": reused})
    reused.fill_(3.0)  # a recorded kernel returns the same tensor again
    metrics.add({"loss/critic": reused})
    assert numbers(metrics.drain()) == {"loss/critic": 2.0}


@pytest.mark.parametrize(("value", "shown"), [(0.5, "float"), (torch.zeros(3), "tensor [3]")])
def test_metric_that_is_not_a_0d_tensor_is_named(value: Any, shown: str) -> None:
    metrics = Accumulator()
    metrics.add({"loss/q": torch.tensor(1.0)})
    with pytest.raises(TypeError, match=re.escape(f"the metric loss/q is a {shown}; update must return 0-d tensors")):
        metrics.add({"loss/q": value})


def test_metric_of_an_update_without_the_name_of_log_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="the metric critic of an update must be named loss/critic, as in log rows"):
        Accumulator().add({"critic": torch.tensor(1.0)})


def test_measures_report_means_since_the_last_row_and_totals() -> None:
    metrics = Accumulator(window=1)
    metrics.measure({"regret": np.array([1.0, 3.0])})
    metrics.measure({"regret": np.array([0.0, 0.0])})
    row = {"train/regret": 1.0, "train/regret_smooth": 1.0, "train/regret_total": 2.0}
    assert metrics.drain_measures() == row
    assert metrics.drain_measures() == {"train/regret_smooth": 1.0, "train/regret_total": 2.0}
    metrics.measure({"regret": np.array([5.0, 7.0])})
    row = {"train/regret": 6.0, "train/regret_smooth": 6.0, "train/regret_total": 8.0}
    assert metrics.drain_measures() == row


def test_moving_averages_of_measures_cover_the_window_in_whole_rows() -> None:
    metrics = Accumulator(window=3)
    for values in ([1.0, 1.0], [4.0, 4.0], [7.0], [10.0, 10.0]):
        for value in values:
            metrics.measure({"regret": np.array([value])})
        row = metrics.drain_measures()
    assert row["train/regret_smooth"] == pytest.approx((7 + 10 + 10) / 3)


def test_moving_averages_cover_a_20th_of_the_timesteps_of_a_run(build: Callable[..., Any]) -> None:
    changes = {"trainer.total_steps": 800, "env.num_envs": 4}
    assert build(toy("ucb", **changes)).metrics.window == 800 / 4 / 20


def test_measures_of_the_first_steps_do_not_count(build: Callable[..., Any]) -> None:
    loop = build(toy("ucb", **{"trainer.measure_after": 8, "env.num_envs": 4}))
    seen = []
    for _ in range(4):
        loop.collect()
        seen.append(loop.metrics.recent.get("train/regret", (0.0, 0))[1])
    assert seen == [0, 0, 1, 2]


def test_measure_without_a_report_in_the_window_has_no_moving_average() -> None:
    metrics = Accumulator(window=1)
    metrics.measure({"jam": np.array([1.0])})
    metrics.drain_measures()
    metrics.measure({"regret": np.array([2.0])})
    assert metrics.drain_measures() == {
        "train/jam_total": 1.0, "train/regret": 2.0, "train/regret_smooth": 2.0, "train/regret_total": 2.0,
    }  # fmt: skip


def test_metrics_of_a_resumed_run_continue() -> None:
    first, resumed = Accumulator(window=4), Accumulator(window=4)
    first.measure({"regret": np.array([1.0])})
    first.drain_measures()
    first.measure({"regret": np.array([2.0])})
    first.add({"loss/critic": torch.tensor(1.0)})
    first.log([("x", 1.0)])
    episode = Episode([1.0, 2.0], 3, infos={"energy": 0.5})
    first.episodes.append(episode)
    resumed.load_state_dict(first.state_dict())
    for metrics in (first, resumed):
        metrics.measure({"regret": np.array([6.0])})
        metrics.add({"loss/critic": torch.tensor(2.0)})
        metrics.log([("x", 2.0), ("y", 3.0)])
        row = {"train/regret": 4.0, "train/regret_smooth": 3.0, "train/regret_total": 9.0}
        assert metrics.drain_measures() == row
        assert numbers(metrics.drain()) == {"loss/critic": 1.5}
        assert metrics.drain_logged() == {"custom/x": 1.5, "custom/y": 3.0}
        assert metrics.drain_episodes() == [episode] and not metrics.episodes


@pytest.mark.parametrize("updates", [{"loss/critic": 1.0}, {"loss/critic": ["a", 1]}, ["loss/critic"]])
def test_accumulator_refuses_untrusted_state_of_other_types(updates: object) -> None:
    state = Accumulator().get_extra_state() | {"updates": updates}
    with pytest.raises((TypeError, ValueError, AttributeError)):
        Accumulator().set_extra_state(state)


def test_epochs_give_means_and_the_losses_of_the_first_and_last() -> None:
    epochs = [{"loss/critic": torch.tensor(loss), "loss/kl": torch.tensor(0.1)} for loss in (3.0, 2.0, 1.0)]
    found = numbers(epoch_metrics(epochs))
    ends = {"loss/critic_first_epoch": 3.0, "loss/critic_last_epoch": 1.0}
    assert found == pytest.approx({"loss/critic": 2.0, "loss/kl": 0.1} | ends)
    assert numbers(epoch_metrics(epochs[:1])) == pytest.approx({"loss/critic": 3.0, "loss/kl": 0.1})
    ends = {"loss/critic_first_epoch": 3.0, "loss/critic_last_epoch": 2.0}
    assert numbers(epoch_metrics(epochs[:1], epochs[1])) == pytest.approx({"loss/critic": 3.0, "loss/kl": 0.1} | ends)


def test_measures_leave_out_environments_that_report_nothing() -> None:
    metrics = Accumulator()
    for values in ([1.0, np.nan], [np.nan, np.nan], [4.0, 6.0]):
        metrics.measure({"length": np.array(values)})
    assert metrics.drain_measures()["train/length"] == 3.0
    metrics.measure({"length": np.array([np.nan])})
    assert "train/length" not in metrics.drain_measures()
