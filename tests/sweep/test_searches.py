"""Which point of a space each trial gets."""

import numpy as np
import pytest

from rlrun.errors import ConfigError
from rlrun.sweep.ranges import Choice, Int, Uniform
from rlrun.sweep.search import Grid, Random, Sobol
from rlrun.sweep.space import Dimension, Space
from rlrun.sweep.trials import Trials

SPACE = Space(
    [Dimension("a", Uniform(0.0, 1.0), {}), Dimension("b", Choice(("x", "y")), {}), Dimension("c", Int(1, 3), {})]
)
NONE = Trials(["CartPole"], seeds=1, last_rung=0)


@pytest.mark.parametrize("search", [Random, Sobol])
def test_point_depends_on_seed_and_number_alone(search: type) -> None:
    one, other = search(SPACE, 1, 16), search(SPACE, 1, 16)
    points = [one.ask(trial, NONE) for trial in range(16)]
    assert [other.ask(trial, NONE) for trial in reversed(range(16))] == points[::-1]
    assert search(SPACE, 2, 16).ask(0, NONE) != points[0]
    assert all(0 <= u < 1 for point in points for u in point) and len({*map(tuple, points)}) == 16


def test_sobol_points_fill_every_part_of_each_dimension() -> None:
    points = np.array([Sobol(SPACE, 0, 16).ask(trial, NONE) for trial in range(16)])
    for column in points.T:
        assert sorted((column * 16).astype(int)) == list(range(16))


def test_grid_has_all_combinations_with_the_last_key_fastest() -> None:
    search = Grid(SPACE, 0, 20)
    found = [SPACE.values(search.ask(trial, NONE), {}) for trial in range(search.trials)]
    assert search.trials == 18  # 3 x 2 x 3
    assert found[:4] == [{"a": 0.0, "b": "x", "c": 1}, {"a": 0.0, "b": "x", "c": 2}, {"a": 0.0, "b": "x", "c": 3},
                         {"a": 0.0, "b": "y", "c": 1}]  # fmt: skip
    assert len({tuple(values.values()) for values in found}) == 18
    with pytest.raises(ConfigError, match="2 combinations; trials=1 are too few"):
        Grid(Space([Dimension("b", Choice(("x", "y")), {})]), 0, 1)


def test_grid_of_many_trials_is_as_fine_as_they_allow() -> None:
    assert Grid(Space([Dimension("a", Uniform(0.0, 1.0), {})]), 0, 5000).trials == 5000
    assert Grid(Space([Dimension("c", Int(1, 3), {})]), 0, 5000).trials == 3
