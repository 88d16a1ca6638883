"""Epsilon over the course of a run, exactly."""

import math

import pytest

from rlrun.settings import registry
from rlrun.types import Context


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"name": "linear", "start": 1.0, "end": 0.2, "fraction": 0.5}, [1.0, 0.6, 0.2, 0.2]),
        (
            {"name": "exponential", "start": 1.0, "end": 0.2, "steps": 1000},
            [1.0, 0.2 + 0.8 / math.e, 0.2 + 0.8 * math.exp(-2), 0.2 + 0.8 * math.exp(-4)],
        ),
        (
            {"name": "random_start", "start": 0.4, "end": 0.0, "fraction": 1.0, "start_steps": 1001},
            [1.0, 1.0, 0.2, 0.0],
        ),
        ({"name": "geometric", "start": 0.8, "factor": 0.5, "updates": 150}, [0.8, 0.4, 0.2, 0.05]),
        ({"name": "geometric", "start": 0.8, "factor": 1.0, "updates": 150}, [0.8, 0.8, 0.8, 0.8]),
    ],
)
def test_epsilon_follows_its_schedule(values: dict[str, object], expected: list[float]) -> None:
    schedule = registry.build("epsilon", values)
    contexts = [
        Context(updates, steps, steps / 4000) for updates, steps in ((0, 0), (290, 1000), (310, 2000), (600, 4000))
    ]
    assert [schedule.at(ctx) for ctx in contexts] == pytest.approx(expected)
