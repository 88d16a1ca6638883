"""Spaces of a training and of an evaluation are compared as text: what a policy depends on, and nothing else."""

import numpy as np
import pytest
from gymnasium import spaces

from rlrun.envs.same_spaces import actions, difference, observations

BOX = spaces.Box(-1.0, 1.0, (2,))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BOX, spaces.Box(-9.0, 1.0, (2,))),
        (BOX, spaces.Box(-1.0, np.array([1.0, 2.0], np.float32))),
        (BOX, spaces.Box(-1.0, 1.0, (2, 1))),
        (BOX, spaces.Box(-1, 1, (2,), np.int32)),
        (BOX, spaces.Discrete(2)),
        (spaces.Discrete(2), spaces.Discrete(2, start=1)),
        (spaces.Discrete(2), spaces.Discrete(3)),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([2, 3], start=[0, 1])),
        (spaces.Dict(a=BOX), spaces.Dict(b=BOX)),
        (spaces.Tuple((BOX,)), spaces.Tuple((spaces.Box(-2.0, 1.0, (2,)),))),
    ],
)
def test_other_actions_have_other_texts(one: spaces.Space, other: spaces.Space) -> None:
    assert actions(one) == actions(one) != actions(other)


def test_precision_of_action_bounds_is_not_compared() -> None:
    assert actions(spaces.Box(-0.4, 0.4, (2,), np.float32)) == actions(spaces.Box(-0.4, 0.4, (2,), np.float64))


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        (BOX, spaces.Box(-9.0, 9.0, (2,), np.float64), True),  # networks do not receive bounds
        (BOX, spaces.Box(-1.0, 1.0, (3,)), False),
        (BOX, spaces.Box(0, 255, (2,), np.uint8), False),
        (spaces.Discrete(3), spaces.Discrete(3, start=1), False),
        (spaces.Dict(a=BOX), spaces.Dict(b=BOX), False),
    ],
)
def test_observations_are_compared_by_keys_shape_and_dtype(
    one: spaces.Space, other: spaces.Space, are_equal: bool
) -> None:
    assert (observations(one) == observations(other)) == are_equal


def test_difference_names_the_space_and_reads_untrusted_records() -> None:
    here = {"observations": "Box", "actions": "Discrete(2)"}
    assert difference({"actions": "Discrete(3)"}, here) == "actions are Discrete(2), but Discrete(3) in training"
    assert difference({"actions": ["\x1b[31m"]}, here) == "actions are Discrete(2), but ['\\x1b[31m'] in training"
    for unknown in (None, "text", {}, here):
        assert difference(unknown, here) is None
