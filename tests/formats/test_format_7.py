"""Configs of format 6, whose numbers that change during a run had pairs of settings."""

from typing import Any

import pytest

from rlrun.formats.history import upgraded


def converted(**algo: Any) -> dict[str, Any]:
    """Returns the section `algo` of a config of format 6 in the current format."""
    values, _ = upgraded({"format": 6, "algo": algo})
    section: dict[str, Any] = values["algo"]
    return section


def test_start_and_end_become_a_schedule() -> None:
    search = {"name": "puct", "temperature_start": 1.0, "temperature_end": 0.25}
    buffer = {"name": "prioritized", "beta": 0.4, "beta_final": 1.0}
    assert converted(search=search, buffer=buffer) == {
        "search": {"name": "puct", "temperature": {"name": "linear", "start": 1.0, "end": 0.25, "fraction": 1.0}},
        "buffer": {
            "name": "prioritized",
            "beta": {"name": "linear", "start": 0.4, "end": 1.0, "fraction": 1.0},
            "divide_weights": True,  # since format 10
        },
    }


def test_decay_of_epsilon_becomes_a_schedule() -> None:
    assert converted(epsilon=0.1, epsilon_decay=0.999) == {
        "epsilon": {"name": "geometric", "start": 0.1, "factor": 0.999, "updates": 1}
    }


def test_end_of_the_intrinsic_coefficient_and_decay_of_the_learning_rate_become_schedules() -> None:
    intrinsic = {"coef": 0.5, "coef_end": 0.0}
    decay = {"learning_rate": 0.1, "learning_rate_decay": 0.5, "reset_learning_rate_every": 9}
    assert converted(schedule={}, intrinsic=intrinsic, **decay) == {
        "intrinsic": {"coef": 0.5},
        "learning_rate": 0.1,
        "schedule": {
            "intrinsic": {"coef": {"linear": {"end": 0.0}}},
            "learning_rate": {"inverse": {"decay": 0.5, "restart_every": 9}},
        },
    }
    constant = {"learning_rate": 0.1, "learning_rate_decay": 0.0, "reset_learning_rate_every": None}
    assert converted(schedule={}, intrinsic=intrinsic | {"coef_end": None}, **constant) == {
        "intrinsic": {"coef": 0.5},
        "learning_rate": 0.1,
        "schedule": {},
    }


@pytest.mark.parametrize("algo", [None, 3, {"search": 3, "buffer": None, "intrinsic": [], "schedule": 3}])
def test_faulty_sections_stay_as_they_are(algo: Any) -> None:
    assert upgraded({"format": 6, "algo": algo})[0] == {"algo": algo}
