"""Observations that a policy acts on from Python have the form of its observation space, or a ValueError names it."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces

from rlrun.envs.stepping.obs_adapter import FromTuple, WithMask
from rlrun.run.policy import Policy
from rlrun.types import Spec

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
THREE = spaces.Discrete(3)
MASKED = WithMask({"obs": VECTOR, "action_mask": spaces.MultiBinary(3)})
NESTED = spaces.Dict(
    {
        "mode": spaces.Discrete(3, start=1),
        "image": spaces.Box(0, 255, (2, 2), np.uint8),
        "pair": FromTuple({"0": spaces.Discrete(2), "1": VECTOR}),
    }
)
ONE = {"mode": 3, "image": np.full((2, 2), 255), "pair": (1, [0.5, 1, 2])}


class Sight:
    """Stands in for agent and add-ons: chooses the last action, and keeps what it saw."""

    def __init__(self, action: Any):
        self.action = torch.as_tensor(action)
        self.reads_previous = ()

    def act(self, agent: Any, seen: Any, carry: Any, explore: bool) -> Any:
        self.seen = seen
        return torch.stack([self.action] * len(carry["first"])), {}


def policy(space: Space, action: Space = THREE, last: Any = 2) -> tuple[Policy, Sight]:
    sight = Sight(last)
    return Policy(None, sight, Spec(space, action, 1), torch.device("cpu")), sight  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("space", "obs", "line"),
    [
        (VECTOR, np.zeros(4), r"observation has shape \[4\]; expected \[3\], or \[3\] after a batch dimension"),
        (VECTOR, np.zeros((2, 4)), r"observation has shape \[2, 4\]; expected \[3\]"),
        (VECTOR, [[1, 2, 3], [4]], r"observation has parts of different shapes; expected \[3\]"),
        (VECTOR, {"obs": np.zeros(3)}, r"observation is a dict; expected \[3\]"),
        (VECTOR, "abc", r"observation has shape \[\]; expected \[3\]"),
        (VECTOR, ["a", "b", "c"], "observations that are not numbers"),
        (VECTOR, [np.nan, 0, 0], "observations that are not finite"),
        (MASKED, np.zeros(3), r"observation is a ndarray; expected \{'action_mask': .*'obs': .* mask in the info"),
        (MASKED, {"obs": np.zeros(3)}, "observation has no entry 'action_mask'; expected {"),
        (MASKED, {"obs": np.zeros(3), "action_mask": [1, 0]}, "action_mask has 2 entries"),
        (MASKED, {"obs": np.zeros((2, 3)), "action_mask": [1, 0, 1]}, "some entries .* have a batch dimension"),
        (
            MASKED,
            {"obs": np.zeros((2, 3)), "action_mask": np.ones((4, 3))},
            r"entries of the observation have batches of different sizes: \[2, 4\]",
        ),
        (NESTED, [ONE, ONE], r"observation is a list; expected \{'image': .*, each entry of one observation or"),
        (NESTED, np.zeros(4), "observation is a ndarray; expected {"),
        (NESTED, {"mode": 1, "image": ONE["image"]}, "observation has no entry 'pair'"),
        (NESTED, ONE | {"pair": [1, [0.5, 1, 2]]}, r"observation\['pair'\] is a list; expected a tuple of 2"),
        (NESTED, ONE | {"pair": (1, [0.5, 1])}, r"observation\['pair'\]\['1'\] has shape \[2\]; expected \[3\]"),
        (NESTED, ONE | {"mode": 0}, r"observations that are not in Discrete\(3, start=1\)"),
        (NESTED, ONE | {"mode": 1.5}, r"observations that are not in Discrete\(3, start=1\)"),
        (NESTED, ONE | {"image": np.full((2, 2), 256)}, r"observations that are not in Box\(0, 255, \(2, 2\), uint8\)"),
        (NESTED, ONE | {"image": np.full((2, 2), 0.5)}, r"observations that are not in Box\(0, 255, \(2, 2\), uint8\)"),
    ],
)
def test_policy_names_the_form_that_an_observation_needs(space: Space, obs: Any, line: str) -> None:
    with pytest.raises(ValueError, match=f"^{line}"):
        policy(space)[0].act(obs)


def test_policy_takes_observations_with_the_dtypes_of_their_spaces() -> None:
    acting, sight = policy(NESTED)
    assert acting.act(ONE) == 2
    assert sight.seen["mode"].tolist() == [3]
    assert sight.seen["image"].dtype == torch.uint8 and sight.seen["image"].tolist() == [[[255, 255], [255, 255]]]
    assert sight.seen["pair"]["1"].dtype == torch.float32 and sight.seen["pair"]["1"].tolist() == [[0.5, 1.0, 2.0]]


def test_policy_takes_masks_as_environments_return_them() -> None:
    acting, sight = policy(MASKED)
    for mask, vector in (([True, False, True], [1, 0, 1]), (None, [1, 1, 1]), (np.array([0, 0, 1]), [0, 0, 1])):
        assert acting.act({"obs": np.zeros(3), "action_mask": mask}) == 2
        assert sight.seen["action_mask"].tolist() == [vector]
    assert acting.act({"obs": np.zeros((2, 3)), "action_mask": [[1, 0, 1], [0, 1, 1]]}).tolist() == [2, 2]
    assert sight.seen["action_mask"].tolist() == [[1, 0, 1], [0, 1, 1]]


def test_policy_takes_a_tuple_of_the_masks_of_each_part_of_an_action() -> None:
    space = WithMask({"obs": VECTOR, "action_mask": spaces.MultiBinary(5)})
    acting, sight = policy(space, spaces.MultiDiscrete([2, 3]), [1, 2])
    mask = (np.array([0, 1], np.int8), np.array([1, 0, 1], np.int8))
    assert acting.act({"obs": np.zeros(3), "action_mask": mask}).tolist() == [1, 2]
    assert sight.seen["action_mask"].tolist() == [[0, 1, 1, 0, 1]]
