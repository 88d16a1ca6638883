"""Measures that environments report are written to log rows: recent means, moving averages, and totals."""

import numpy as np
import pytest

from rlrun.core.measures import Measures


def test_measures_report_means_since_the_last_row_and_totals() -> None:
    measures = Measures(window=1)
    measures.add({"regret": np.array([1.0, 3.0])})
    measures.add({"regret": np.array([0.0, 0.0])})
    assert measures.drain() == {"regret": 1.0, "regret_smooth": 1.0, "regret_total": 2.0}
    assert measures.drain() == {"regret_smooth": 1.0, "regret_total": 2.0}
    measures.add({"regret": np.array([5.0, 7.0])})
    assert measures.drain() == {"regret": 6.0, "regret_smooth": 6.0, "regret_total": 8.0}


def test_moving_averages_of_measures_cover_the_window_in_whole_rows() -> None:
    measures = Measures(window=3)
    for values in ([1.0, 1.0], [4.0, 4.0], [7.0], [10.0, 10.0]):
        for value in values:
            measures.add({"regret": np.array([value])})
        row = measures.drain()
    assert row["regret_smooth"] == pytest.approx((7 + 10 + 10) / 3)


def test_measures_of_a_resumed_run_continue() -> None:
    first, resumed = Measures(window=4), Measures(window=4)
    first.add({"regret": np.array([1.0])})
    first.drain()
    first.add({"regret": np.array([2.0])})
    resumed.load_state_dict(first.state_dict())
    for measures in (first, resumed):
        measures.add({"regret": np.array([6.0])})
    assert resumed.drain() == first.drain() == {"regret": 4.0, "regret_smooth": 3.0, "regret_total": 9.0}
