"""Shapes of schedules, exactly."""

import pytest

from rlrun.schedules.shape import linear


@pytest.mark.parametrize(
    ("progress", "expected"), [(0.0, 1.0), (0.05, 0.75), (0.1, 0.5), (0.2, 0.0), (0.7, 0.0), (1.0, 0.0)]
)
def test_linear_schedule_stays_at_its_end(progress: float, expected: float) -> None:
    assert linear(1.0, 0.0, progress, fraction=0.2) == pytest.approx(expected)


def test_linear_schedule_may_rise_and_ends_exactly() -> None:
    assert linear(0.25, 0.75, 0.5) == 0.5
    assert linear(0.1, 0.3, 1.0) == 0.1 + (0.3 - 0.1)
