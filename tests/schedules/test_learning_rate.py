"""Schedulers of torch as schedules of learning rates, compared with torch."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.core.loop import Loop
from rlrun.errors import ConfigError, RunError
from rlrun.schedules.learning_rate import NAMES, TorchSchedule
from rlrun.schedules.numbers import Schedules
from rlrun.testing import check_resuming
from rlrun.types import Context

Build = Callable[..., Loop]

SETTINGS: dict[str, dict[str, Any]] = {
    "ConstantLR": {"factor": 0.5, "total_iters": 4},
    "CosineAnnealingLR": {"T_max": 10},
    "CosineAnnealingWarmRestarts": {"T_0": 3, "T_mult": 2},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 4},
    "ExponentialLR": {"gamma": 0.9},
    "LinearLR": {"end_factor": 0.0, "total_iters": 10},
    "MultiStepLR": {"milestones": [2, 5]},
    "OneCycleLR": {"max_lr": 1.0, "total_steps": 40},
    "PolynomialLR": {"total_iters": 10},
    "StepLR": {"step_size": 3},
}


def schedule_of(name: str, settings: dict[str, Any], start: float = 0.5) -> TorchSchedule:
    return TorchSchedule(start, name, settings, "algo.schedule.learning_rate")


def rate(schedule: TorchSchedule, updates: int) -> float:
    """Returns the learning rate of an update."""
    return schedule.value_at(schedule.start, Context(updates, env_steps=0, progress=0.0))


def scheduled(values: dict[str, Any]) -> Schedules:
    """Returns the schedules of a run whose learning rate has one."""
    return Schedules(toy("dqn")["algo"] | {"schedule": {"learning_rate": values}})


@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_of_torch_moves_the_rate_as_it_does_there(name: str) -> None:
    schedule = schedule_of(name, SETTINGS[name])
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.5)
    reference = getattr(torch.optim.lr_scheduler, name)(optimiser, **SETTINGS[name])
    for updates in range(20):
        expected = max(0.0, optimiser.param_groups[0]["lr"])  # LinearLR rounds to -1e-17
        assert [rate(schedule, updates), rate(schedule, updates)] == [expected, expected]
        with warnings.catch_warnings(action="ignore"):
            reference.step()


def test_where_a_scheduler_of_torch_ends_its_last_rate_stays() -> None:
    schedule = schedule_of("OneCycleLR", {"max_lr": 1.0, "total_steps": 5})
    rates = [rate(schedule, updates) for updates in range(8)]
    assert rates[4:] == [4e-6] * 4 and rates[3] > 0.1


def test_rate_that_torch_rounds_below_zero_is_zero() -> None:
    schedule = schedule_of("LinearLR", {"end_factor": 0.0, "total_iters": 10}, 0.3)
    rates = [rate(schedule, updates) for updates in range(20)]
    assert rates[0] == pytest.approx(0.1) and rates[10:] == [0.0] * 10
    schedule.holder.param_groups[0]["lr"] = -1e-18
    assert rate(schedule, 19) == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_schedule_resumes_from_its_state(name: str) -> None:
    first, second = schedule_of(name, SETTINGS[name], 0.1), schedule_of(name, SETTINGS[name], 0.1)
    for updates in range(7):
        rate(first, updates)
    second.set_extra_state(first.get_extra_state())
    assert [rate(first, updates) for updates in range(7, 16)] == [rate(second, updates) for updates in range(7, 16)]


def test_forged_state_of_a_scheduler_computes_no_endless_number() -> None:
    settings = {"base_lr": 0.1, "max_lr": 0.2, "mode": "exp_range", "gamma": 2, "cycle_momentum": False}
    schedule = schedule_of("CyclicLR", settings, 0.1)
    state = schedule.get_extra_state()
    schedule.set_extra_state(state | {"scheduler": state["scheduler"] | {"last_epoch": 2 * 10**10, "gamma": 2}})
    with pytest.raises(OverflowError):
        rate(schedule, 2 * 10**10 + 1)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"ExponentalLR": {"gamma": 0.9}}, "did you mean 'ExponentialLR'"),
        ({"linear": {"end": 0.0}, "StepLR": {}}, "one schedule at a time"),
        ({"LambdaLR": {}}, "not supported, because it needs arguments other than numbers"),
        ({"StepLR": {}}, "step_size"),
        ({"StepLR": 9}, r"StepLR=9: must be a section, such as {StepLR: {step_size: 9}}"),
        ({"linear": {"gamma": 0.9}}, "linear.end: missing"),
        ({"ExponentialLR": {"gamma": -0.5}}, r"ExponentialLR.gamma=-0.5: must be at least 0"),
        (
            {"ExponentialLR": {"gamma": 1e308}},
            "reaches 1e.306, but algo.learning_rate must be from -3.4e.38 to 3.4e.38",
        ),
        ({"CyclicLR": {"base_lr": 0.1, "max_lr": float("nan"), "cycle_momentum": False}}, "reaches nan, but"),
        ({"StepLR": {"step_size": 0}}, "modulo by zero"),
        ({"StepLR": {"step_size": 9, "last_epoch": 3}}, "initial_lr"),
    ],
)
def test_unknown_schedule_of_a_learning_rate_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        scheduled(values)
    assert caught.value.faults[0].startswith("algo.schedule.learning_rate")


def test_rate_that_leaves_its_range_stops_the_run() -> None:
    schedules = scheduled({"ExponentialLR": {"gamma": 2.0}})
    with pytest.raises(RunError, match=r"algo\.schedule\.learning_rate: reaches .*, but algo.learning_rate must be"):
        for updates in range(200):
            schedules.update(Context(updates, env_steps=0, progress=0.0), tick_start=0)


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_scheduler_of_torch_takes_one_step_per_update(algo: str, build: Build) -> None:
    loop = build(toy(algo, **{"algo.schedule": {"learning_rate": {"ExponentialLR": {"gamma": 0.9}}}}))
    rates = [train(loop, updates).agent.optim.learning_rate.item() for updates in (1, 2, 3)]
    assert rates == pytest.approx([0.01, 0.009, 0.0081])


def test_run_with_a_scheduler_of_torch_resumes_bit_for_bit(build: Build) -> None:
    falling = {"StepLR": {"step_size": 2}}
    values = toy("sac", **{"algo.schedule": {"actor_learning_rate": falling, "critic_learning_rate": falling}})
    loop = train(build(values), 3)
    check_resuming(loop, build(values, begin=False))
    assert loop.agent.actor_optim.learning_rate < 1e-3
