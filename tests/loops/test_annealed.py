"""The number of updates per transition changes linearly."""

from collections.abc import Callable
from pathlib import Path

import pytest
from toys import Values, toy

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.testing import check_resuming

Build = Callable[..., Loop]
LOOP = {"algo.loop.warmup_steps": 20, "algo.loop.warmup_policy": "agent", "algo.loop.update_every": 10}


def annealed(start: float, end: float, steps: int) -> Values:
    """Returns values of a small run whose updates per transition anneal."""
    rates = {"initial_updates_per_step": start, "updates_per_step": end, "anneal_steps": steps}
    values = toy("neural_greedy", **LOOP)
    values["algo"]["loop"] |= {"name": "annealed"} | rates
    return values


def bursts(loop: Loop, ticks: int) -> list[int]:
    """Returns the numbers of updates of the ticks that had any."""
    numbers = []
    for _ in range(ticks):
        before = loop.updates
        loop.tick()
        if loop.updates > before:
            numbers.append(loop.updates - before)
    return numbers


def test_annealed_bursts_shrink_linearly(build: Build) -> None:
    loop = build(annealed(4.0, 1.0, 60))
    assert bursts(loop, 50) == [37, 33, 27, 23, 17, 13, 10, 10]  # the integral of the rate is 37.5, 70, 97.5, ...


def test_annealed_rate_may_grow(build: Build) -> None:
    assert bursts(build(annealed(1.0, 3.0, 40)), 40) == [12, 18, 22, 28, 30, 30]


@pytest.mark.parametrize("start", [0.5, 1.0])
def test_annealed_with_equal_rates_is_off_policy(start: float, build: Build) -> None:
    plain = toy("neural_greedy", **LOOP, **{"algo.loop.updates_per_step": start})
    assert bursts(build(annealed(start, start, 40)), 60) == bursts(build(plain), 60)


def test_annealed_runs_resume_bit_for_bit(build: Build, tmp_path: Path) -> None:
    values = annealed(2.0, 0.5, 30)
    loop = build(values)
    for _ in range(18):
        loop.tick()
    check_resuming(loop, build(values, begin=False))


def test_annealed_is_chosen_by_its_name() -> None:
    values = jobs(["algo=neural_greedy", "env=LinearBandit", "algo.loop=annealed"])[0].values["algo"]["loop"]
    assert values["name"] == "annealed" and values["updates_per_step"] == 1.0 and values["anneal_steps"] == 1000
