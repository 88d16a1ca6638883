"""Learning rate schedules, compared with torch's schedulers and with values computed by hand."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.core.loop import Loop
from rlrun.core.state import Optim
from rlrun.errors import ConfigError, RunError
from rlrun.schedules.learning_rate import NAMES, Schedule

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
    "linear": {},
}


@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_of_torch_moves_the_rate_as_it_does_there(name: str) -> None:
    schedule = Schedule(0.5, {name: SETTINGS[name]})
    if name == "linear":
        assert [schedule(progress) for progress in (0.0, 0.25, 1.0)] == [0.5, 0.375, 0.0]
        return
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.5)
    reference = getattr(torch.optim.lr_scheduler, name)(optimiser, **SETTINGS[name])
    for _ in range(20):
        assert schedule(0.0) == optimiser.param_groups[0]["lr"]
        with warnings.catch_warnings(action="ignore"):
            reference.step()


def test_where_a_scheduler_of_torch_ends_its_last_rate_stays() -> None:
    schedule = Schedule(0.5, {"OneCycleLR": {"max_lr": 1.0, "total_steps": 5}})
    rates = [schedule(0.0) for _ in range(8)]
    assert rates[4:] == [4e-6] * 4 and rates[3] > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_schedule_resumes_from_its_state(name: str) -> None:
    values = {name: SETTINGS[name]}
    first, second = Schedule(0.1, values), Schedule(0.1, values)
    for _ in range(7):
        first(0.5)
    second.set_extra_state(first.get_extra_state())
    assert [first(0.6) for _ in range(9)] == [second(0.6) for _ in range(9)]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"ExponentalLR": {"gamma": 0.9}}, "did you mean 'ExponentialLR'"),
        ({"linear": {}, "StepLR": {}}, "one schedule at a time"),
        ({"LambdaLR": {}}, "not supported, because it needs arguments other than numbers"),
        ({"StepLR": {}}, "step_size"),
        ({"linear": {"gamma": 0.9}}, "takes no gamma"),
        ({"ExponentialLR": {"gamma": -0.5}}, r"ExponentialLR.gamma=-0.5: must be at least 0"),
        ({"ExponentialLR": {"gamma": 1e308}}, "ExponentialLR reaches 1e.307, but a learning rate is from 0 to 3.4e.38"),
        ({"StepLR": {"step_size": 0}}, "modulo by zero"),
    ],
)
def test_unknown_lr_schedule_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Schedule(0.1, values)
    assert "algo.lr_schedule" in str(caught.value) and "\n" not in str(caught.value)


def test_rate_that_leaves_its_range_stops_the_run() -> None:
    schedule = Schedule(0.1, {"ExponentialLR": {"gamma": 2.0}})
    with pytest.raises(RunError, match=r"algo\.lr_schedule: ExponentialLR reaches"):
        for _ in range(200):
            schedule(0.0)


def test_a_tick_sets_the_rate_of_the_step_that_follows() -> None:
    param = torch.nn.Parameter(torch.zeros(1))
    optim = Optim([param], 0.1, schedule={"ExponentialLR": {"gamma": 0.5}})
    rates = []
    for _ in range(3):
        optim.tick(0.0)
        rates.append(optim.learning_rate.item())
    assert rates == pytest.approx([0.1, 0.05, 0.025])


@pytest.mark.parametrize(("algo", "per_update"), [("ppo", 2), ("dqn", 1)])
def test_rates_move_once_an_epoch_on_policy_and_once_an_update_otherwise(
    algo: str, per_update: int, build: Build
) -> None:
    loop = build(toy(algo, **{"algo.lr_schedule": {"ExponentialLR": {"gamma": 0.9}}}))
    train(loop, 3)
    assert loop.agent.optim.learning_rate.item() == pytest.approx(0.01 * 0.9 ** (3 * per_update - 1))


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_rates_of_actor_and_critic_both_move(algo: str, build: Build) -> None:
    loop = build(toy(algo, **{"algo.lr_schedule": {"ExponentialLR": {"gamma": 0.9}}}))
    train(loop, 3)
    for optim in (loop.agent.actor_optim, loop.agent.critic_optim):
        assert optim.learning_rate.item() == pytest.approx(0.01 * 0.9**2)
