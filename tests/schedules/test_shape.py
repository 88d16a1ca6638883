"""Shapes of schedules, exactly."""

import math
from typing import Any

import pytest

from rlrun.schedules.shape import SHAPES, linear
from rlrun.settings import parse
from rlrun.types import Context


@pytest.mark.parametrize(
    ("progress", "expected"), [(0.0, 1.0), (0.05, 0.75), (0.1, 0.5), (0.2, 0.0), (0.7, 0.0), (1.0, 0.0)]
)
def test_linear_schedule_stays_at_its_end(progress: float, expected: float) -> None:
    assert linear(1.0, 0.0, progress, fraction=0.2) == pytest.approx(expected)


def test_linear_schedule_may_rise_and_ends_exactly() -> None:
    assert linear(0.25, 0.75, 0.5) == 0.5
    assert linear(0.1, 0.3, 1.0) == 0.1 + (0.3 - 0.1)


@pytest.mark.parametrize(
    ("start", "name", "settings", "expected"),
    [
        (1.0, "linear", {"end": 0.2, "fraction": 0.5}, [1.0, 0.6, 0.2, 0.2]),
        (1.0, "linear", {"end": 0.2}, [1.0, 0.8, 0.6, 0.2]),
        (
            1.0,
            "exponential",
            {"end": 0.2, "steps": 1000},
            [1.0, 0.2 + 0.8 / math.e, 0.2 + 0.8 * math.exp(-2), 0.2 + 0.8 * math.exp(-4)],
        ),
        (0.4, "random_start", {"end": 0.0, "fraction": 1.0, "start_steps": 1001}, [1.0, 1.0, 0.2, 0.0]),
        (0.8, "geometric", {"factor": 0.5, "updates": 150}, [0.8, 0.4, 0.2, 0.05]),
        (0.8, "geometric", {"factor": 1.0, "updates": 150}, [0.8, 0.8, 0.8, 0.8]),
        (0.8, "inverse", {"decay": 0.1}, [0.8, 0.8 / 30, 0.8 / 32, 0.8 / 61]),
        (0.8, "inverse", {"decay": 0.1, "restart_every": 300}, [0.8, 0.8 / 30, 0.8 / 2, 0.8]),
        (0.8, "inverse", {"decay": 0.1, "restart_every": "burst"}, [0.8, 0.8 / 1.4, 0.8 / 1.4, 0.8 / 1.4]),
        (0.5, "piecewise", {"values": [0.6, 0.7], "at": [1000, 3001]}, [0.5, 0.6, 0.6, 0.7]),
        (0.5, "piecewise", {"values": [0.6, 0.9], "at": [1000, 4000], "linear": True}, [0.5, 0.6, 0.7, 0.9]),
        (0.5, "piecewise", {"values": [], "at": []}, [0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_shape_has_its_value_at_a_point_of_the_run(
    start: float, name: str, settings: dict[str, Any], expected: list[float]
) -> None:
    shape: Any = parse(SHAPES[name], settings, "shape")
    contexts = [
        Context(updates, steps, steps / 4000, tick_updates=min(updates, 4))
        for updates, steps in ((0, 0), (290, 1000), (310, 2000), (600, 4000))
    ]
    assert [shape.value_at(start, ctx) for ctx in contexts] == pytest.approx(expected)
