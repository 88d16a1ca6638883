"""Numbers that a user's code logs."""

import pytest

import rlrun
from rlrun.core import logged
from rlrun.core.logged import take_logged


def test_numbers_that_no_run_takes_are_bounded() -> None:
    take_logged()
    for value in range(logged.MOST + 2):
        rlrun.log("x", value)
    found = take_logged()
    assert len(found) == logged.MOST and found[-1] == ("x", logged.MOST + 1)
    assert take_logged() == []


def test_metric_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="the name of a metric is empty"):
        rlrun.log("", 3)
    assert take_logged() == []
