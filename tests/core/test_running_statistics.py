"""Running statistics: which rows count and how much, when they become live, and exact resumes."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlrun.core.statistics import Statistics, statistics_of
from rlrun.errors import ConfigError

PARTS: dict[str, dict[str, object]] = {
    "all": {"name": "all"},
    "adaptive": {"name": "adaptive", "speed": 8.0},
    "window": {"name": "window", "size": 30},
    "ema": {"name": "ema", "rate": 0.05},
}


def made(name: str, shape: tuple[int, ...] = (), **changes: object) -> Statistics:
    return statistics_of(PARTS.get(name, {"name": name}) | changes, shape, "KEY")


def batch_weights(name: str, count: int) -> list[float]:
    """Returns the weight of each of so many batches, by the definition of the part."""
    if name == "ema":
        weights = [0.95 ** (count - 1 - t) for t in range(count)]
    else:
        own = [8 / (t + 8) for t in range(count)]
        weights = [w * float(np.prod([1 - later for later in own[t + 1 :]])) for t, w in enumerate(own)]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("name", PARTS)
def test_statistics_equal_those_of_a_loop_in_numpy(name: str) -> None:
    statistics = made(name, (2,))
    random = np.random.default_rng(0)
    batches = [random.normal(3, 2, (n, 2)).astype(np.float32) for n in (1, 4, 7, 2, 40, 5, 3)]
    statistics.add(torch.zeros(0, 2))
    for rows in batches:
        statistics.add(torch.from_numpy(rows))
    statistics.publish()
    rows = np.concatenate(batches).astype(np.float64)
    if name in ("all", "window"):
        newest = rows[-30:] if name == "window" else rows
        mean, var = newest.mean(0), newest.var(0)
    else:
        weights = batch_weights(name, len(batches))
        mean = sum(w * batch.mean(0) for w, batch in zip(weights, batches, strict=True))
        square = sum(w * (batch.astype(np.float64) ** 2).mean(0) for w, batch in zip(weights, batches, strict=True))
        var = square - mean**2
    np.testing.assert_allclose(statistics.live.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(statistics.live.var, var, rtol=1e-6)


@pytest.mark.parametrize("name", PARTS)
def test_stationary_rows_are_standardised_to_mean_0_and_variance_1(name: str) -> None:
    statistics = made(name, **{"ema": {"rate": 1e-3}, "window": {"size": 10_000}}.get(name, {}))
    rows = 3 + 2 * torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    for batch in rows.view(-1, 500):
        statistics.add(batch)
    statistics.publish()
    mean, var = statistics.available()
    standardised = (rows - mean) / var.sqrt()
    assert standardised.mean().item() == pytest.approx(0, abs=0.02)
    assert standardised.var().item() == pytest.approx(1, abs=0.02)


def batches_until_near(statistics: Statistics, most: int) -> int:
    """Returns how many batches of mean 5 bring the mean from 0, with standard deviation 1, to within a half of 5."""
    for count in range(1, most + 1):
        statistics.add(torch.tensor([4.0, 6.0]))
        statistics.publish()
        if abs(statistics.live.mean - 5) <= 0.5:
            return count
    return most + 1


def after(name: str, count: float, **changes: object) -> Statistics:
    """Returns statistics with mean 0 and variance 1 after so many rows or batches."""
    statistics: Any = made(name, **changes)
    statistics.pending.count.fill_(count)
    statistics.live.count.fill_(count)
    return statistics


def test_time_to_recover_from_a_shift_is_as_configured() -> None:
    fast, slow = (batches_until_near(after("ema", 1 / rate, rate=rate), 4000) for rate in (1e-2, 1e-3))
    assert slow / fast == pytest.approx(10, rel=0.2) and slow == pytest.approx(np.log(10) / 1e-3, rel=0.01)

    rows = 2 * batches_until_near(after("window", 100, size=100), 60)
    assert rows == pytest.approx(100, rel=0.1)

    distance, t = 5.0, 1000
    while distance > 0.5:
        distance *= 1 - 8 / (t + 8)
        t += 1
    assert batches_until_near(after("adaptive", 1000), 400) == t - 1000 == 335

    everything: Any = after("all", 0)
    everything.live.count.fill_(1000)
    assert batches_until_near(everything, 500) == 501


@pytest.mark.parametrize("name", PARTS)
def test_rows_are_pending_until_they_are_published(name: str) -> None:
    statistics = made(name, (1,))
    statistics.add(torch.tensor([[1.0], [3.0]]))
    assert [value.item() for value in statistics.available()] == [2.0, 1.0], "nothing is live yet"
    assert statistics.live.mean == 0 and statistics.live.var == 1
    statistics.publish()
    statistics.add(torch.tensor([[100.0]]))
    assert [value.item() for value in statistics.available()] == [2.0, 1.0]
    statistics.publish()
    assert statistics.available()[0] > 2.0


@pytest.mark.parametrize("name", PARTS)
def test_statistics_continue_exactly_from_their_state_with_pending_rows(name: str) -> None:
    rows = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    first, second = made(name, (5,)), made(name, (5,))
    first.add(rows[:20])
    first.publish()
    first.add(rows[20:45])
    second.load_state_dict(first.state_dict())
    for statistics in (first, second):
        statistics.add(rows[45:])
        statistics.publish()
    state = second.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in first.state_dict().items())
    assert (first.live.var < 1.5).all() and first.live.mean.all()


def test_without_statistics_the_mean_is_0_and_the_variance_1() -> None:
    statistics = made("none", (2,))
    statistics.add(torch.full((3, 2), 9.0))
    statistics.publish()
    state: dict[str, Tensor] = made("all", (2,)).state_dict()
    assert statistics.state_dict().keys() == state.keys(), "snapshots of DIAYN before format 10 hold such statistics"
    statistics.load_state_dict({name: value + 7 for name, value in state.items()})
    mean, var = statistics.available()
    assert mean.tolist() == [0, 0] and var.tolist() == [1, 1]


def test_windows_refuse_images_in_one_line() -> None:
    line = (
        r"^KEY=window: keeps the newest 30 rows, which must be numbers or vectors and not images, but have the shape "
        r"\(84, 84, 3\); choose all, adaptive or ema$"
    )
    with pytest.raises(ConfigError, match=line):
        made("window", (84, 84, 3))
