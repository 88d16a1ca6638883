"""FlattenInputs: every kind of observation becomes one vector, with any leading dimensions."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.errors import ConfigError
from rlrun.networks.inputs import FlattenInputs, is_image

CASES: list[tuple[str, Space, Any, list[float]]] = [
    ("box", spaces.Box(-1, 1, (3,)), [0.5, -0.5, 0.25], [0.5, -0.5, 0.25]),
    ("matrix", spaces.Box(-9, 9, (2, 2)), [[1.0, 2.0], [3.0, 4.0]], [1, 2, 3, 4]),
    ("number", spaces.Box(-1, 1, ()), 0.5, [0.5]),
    ("bytes", spaces.Box(0, 255, (2,), np.uint8), [51, 255], [0.2, 1]),
    ("discrete", spaces.Discrete(3), 2, [0, 0, 1]),
    ("discrete from 5", spaces.Discrete(3, start=5), 6, [0, 1, 0]),
    ("multi-discrete", spaces.MultiDiscrete([2, 3]), [1, 0], [0, 1, 1, 0, 0]),
    ("multi-discrete matrix", spaces.MultiDiscrete([[2, 2], [2, 2]]), [[0, 1], [1, 0]], [1, 0, 0, 1, 0, 1, 1, 0]),
    ("multi-binary", spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
    (
        "dict",
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(2)}),
        {"b": 1, "a": [0.5, 0.25], "action_mask": [0, 1]},
        [0.5, 0.25, 0, 1],
    ),
    (
        "dict in dict",
        spaces.Dict({"x": spaces.Dict({"y": spaces.Discrete(2)}), "z": spaces.Box(-1, 1, (1,))}),
        {"x": {"y": 0}, "z": [0.75]},
        [1, 0, 0.75],
    ),
]


def batched(value: Any, *leading: int) -> Any:
    if isinstance(value, dict):
        return {key: batched(part, *leading) for key, part in value.items()}
    tensor = torch.as_tensor(value)
    return tensor.expand(*leading, *tensor.shape)


@pytest.mark.parametrize(("space", "value", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("leading", [(1,), (4,), (3, 4)], ids=str)
def test_flatten_makes_a_vector_of_every_space(
    space: Space, value: Any, expected: list[float], leading: tuple[int, ...]
) -> None:
    flatten = FlattenInputs(space)
    flat: Tensor = flatten(batched(value, *leading))
    assert flat.dtype == torch.float32
    assert flat.shape == (*leading, flatten.size)
    assert (flat == torch.tensor(expected)).all()


def test_flatten_refuses_spaces_without_a_fixed_size() -> None:
    with pytest.raises(ConfigError, match="not supported"):
        FlattenInputs(spaces.Text(5))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), True),
        (spaces.Box(0, 255, (3, 16, 16), np.uint8), True),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), True),  # channels last
        (spaces.Box(0, 255, (84, 84), np.uint8), False),
        (spaces.Box(0, 1, (4, 84, 84), np.float32), False),
        (spaces.Discrete(3), False),
    ],
)
def test_is_image_takes_bytes_with_channels_first_or_last(space: Space, expected: bool) -> None:
    assert is_image(space) == expected
