"""Measures that environments report are written to log rows: the recent mean, and the sum so far."""

import numpy as np

from rlrun.core.measures import add, drain


def test_measures_report_means_since_the_last_row_and_totals():
    measures = {}
    add(measures, {"regret": np.array([1.0, 3.0])})
    add(measures, {"regret": np.array([0.0, 0.0])})
    assert drain(measures) == {"regret": 1.0, "regret_total": 2.0}
    assert drain(measures) == {"regret_total": 2.0}
    add(measures, {"regret": np.array([5.0, 7.0])})
    assert drain(measures) == {"regret": 6.0, "regret_total": 8.0}
