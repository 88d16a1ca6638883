"""Configs and state of format 7, whose learning rates had schedules of their own."""

from typing import Any

import pytest

from rlrun.errors import ConfigError
from rlrun.formats.history import renamed_state, upgraded

TO_0 = {"linear": {"end": 0.0}}
STEP = {"StepLR": {"step_size": 9}}


def converted(**algo: Any) -> dict[str, Any]:
    """Returns the section `algo` of a config of format 7 in the current format."""
    values, _ = upgraded({"format": 7, "algo": algo})
    section: dict[str, Any] = values["algo"]
    return section


def test_schedule_covers_the_learning_rates_that_it_covered() -> None:
    assert converted(name="dqn", learning_rate=0.1, lr_schedule={"linear": {}}, schedule={"tau": TO_0}) == {
        "name": "dqn",
        "learning_rate": 0.1,
        "schedule": {"tau": TO_0, "learning_rate": TO_0},
    }
    rates = {"actor_learning_rate": 0.1, "critic_learning_rate": 0.2}
    entropy = {"entropy": {"name": "auto", "learning_rate": 0.3}}
    both = {"actor_learning_rate": STEP, "critic_learning_rate": STEP}
    assert converted(name="sac", **rates, **entropy, lr_schedule=STEP) == {
        "name": "sac",
        **rates,
        **entropy,
        "schedule": both,
    }
    assert converted(name="iql", **rates, lr_schedule=STEP)["schedule"] == {"actor_learning_rate": STEP}
    assert converted(name="dqn", learning_rate=0.1, lr_schedule={}, schedule={}) == {
        "name": "dqn",
        "learning_rate": 0.1,
        "schedule": {},
    }


@pytest.mark.parametrize(
    ("shared", "rate", "own", "new_rate", "expected"),
    [
        ({}, None, None, None, {}),
        ({"linear": {}}, None, None, None, {"learning_rate": TO_0}),
        ({"linear": {}}, 0.5, None, 0.5, {"learning_rate": TO_0, "critic_update": {"learning_rate": TO_0}}),
        ({"linear": {}}, 0.5, {}, 0.5, {"learning_rate": TO_0}),
        ({"linear": {}}, None, {}, 0.1, {"learning_rate": TO_0}),
        ({"linear": {}}, None, STEP, 0.1, {"learning_rate": TO_0, "critic_update": {"learning_rate": STEP}}),
        ({}, None, {"linear": {}}, 0.1, {"critic_update": {"learning_rate": TO_0}}),
        ({}, None, {}, None, {}),
    ],
)
def test_schedule_of_the_critic_is_its_own_or_that_of_the_policy(
    shared: Any, rate: float | None, own: Any, new_rate: float | None, expected: dict[str, Any]
) -> None:
    critic = {"name": "split", "learning_rate": rate, "lr_schedule": own}
    agent = {"name": "a2c", "learning_rate": 0.1, "lr_schedule": shared, "epochs": 1, "critic_update": critic}
    found = converted(**agent, schedule={})
    assert found["critic_update"] == {"name": "split", "learning_rate": new_rate} and found["learning_rate"] == 0.1
    assert found["schedule"] == expected and "lr_schedule" not in found
    particle = converted(name="svpg", particle=agent | {"critic_update": critic | {"lr_schedule": own}}, schedule={})
    assert particle["schedule"] == ({"particle": expected} if expected else {})


@pytest.mark.parametrize(
    "algo",
    [
        {"epochs": 2, "lr_schedule": STEP},
        {"epochs": 1, "lr_schedule": STEP, "critic_update": {"epochs": 5, "lr_schedule": None}},
        {"epochs": 2, "lr_schedule": {}, "critic_update": {"lr_schedule": STEP, "learning_rate": 0.1}},
        {"loop": {"name": "annealed"}},
    ],
)
def test_run_whose_schedule_has_changed_its_meaning_is_refused_in_one_line(algo: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="commit a056961b is the last that") as refused:
        converted(learning_rate=0.1, **algo)
    assert len(refused.value.faults) == 1
    assert converted(epochs=2, learning_rate=0.1, lr_schedule={"linear": {}})["schedule"] == {"learning_rate": TO_0}


def test_learning_rates_and_schedulers_move_to_the_schedules() -> None:
    scheduler = {"scheduler": {"last_epoch": 3}, "rate": 0.2}
    state = {
        "agent.actor_optim.learning_rate": 0.1,
        "agent.actor_optim.schedule._extra_state": {},
        "agent.critic_optim.learning_rate": 0.2,
        "agent.critic_optim.schedule._extra_state": scheduler,
        "agent.entropy.optim.learning_rate": 0.3,
    }
    assert renamed_state(dict(state), 7, "sac") == {
        "agent.actor_optim.learning_rate": 0.1,
        "agent.critic_optim.learning_rate": 0.2,
        "agent.entropy.optim.learning_rate": 0.3,
        "schedules.actor_learning_rate": 0.1,
        "schedules.critic_learning_rate": 0.2,
        "schedules.critic_learning_rate_scheduler._extra_state": scheduler,
    }
    tabular = {"agent.rate": 0.5, "agent.lr_schedule._extra_state": {}}
    assert renamed_state(tabular, 7, "q_learning") == {"agent.rate": 0.5, "schedules.learning_rate": 0.5}
    particles = {}
    for i in range(2):
        particles |= {
            f"agent.particles.{i}.optim.optim.learning_rate": 0.1,
            f"agent.particles.{i}.optim.optim.schedule._extra_state": {},
        }
    moved = renamed_state(particles, 7, "svpg")
    assert moved["schedules.particle/learning_rate"] == 0.1 and not [key for key in moved if "_extra_state" in key]


@pytest.mark.parametrize("algo", [None, 3, {"particle": 3, "loop": [], "critic_update": None}])
def test_faulty_sections_stay_as_they_are(algo: Any) -> None:
    assert upgraded({"format": 7, "algo": algo})[0] == {"algo": algo}
