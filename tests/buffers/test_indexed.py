"""Tensors given by rows and indices."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rlrun.indexed import Indexed, dense, num_bytes

ROWS = torch.arange(60.0).view(10, 2, 3)
INDEX = torch.tensor([[0, 3, 3, 9], [1, 2, 0, 5]]).int()
STACKS = torch.randint(10, (2, 4, 5), generator=torch.Generator().manual_seed(0)).int()

LEADING: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x[1],
    "slice": lambda x: x[:, 1:3],
    "mask": lambda x: x[torch.tensor([[True, False, True, True], [False, False, True, False]])],
    "pairs": lambda x: x[torch.tensor([0, 1, 1]), torch.tensor([3, 0, 2])],
    "flatten": lambda x: x.flatten(0, 1),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "transpose": lambda x: x.transpose(0, 1),
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 2, 0])),
}
DENSE: dict[str, Callable[[Any], Tensor]] = {
    "trailing index": lambda x: x[..., 0],
    "deep index": lambda x: x[0, 1, 0],
    "new dimension": lambda x: x[None],
    "flatten all": lambda x: x.flatten(),
    "flatten the end": lambda x: x.flatten(-2),
    "transpose the end": lambda x: x.transpose(-1, -2),
    "select the end": lambda x: x.index_select(-1, torch.tensor([1])),
    "unflatten the end": lambda x: x.unflatten(-1, (1, -1)),
    "scalar": lambda x: 2 * (x / 3 - 1),
    "tensor": lambda x: torch.ones(3) - x,
    "comparison": lambda x: x > 7,
    "equality": lambda x: x == 7,
    "inequality": lambda x: x != x.flatten()[0],
    "powers": lambda x: 1.01 ** (x**2 / 60),
    "absolute value": lambda x: abs(x),
    "function": lambda x: torch.cat([x, x], 1),
    "keyword": lambda x: torch.clamp(input=x, max=7.0),
    "method": lambda x: x.float().mean(),
    "matrix product": lambda x: torch.nn.functional.linear(x, torch.ones(4, 3)),
}


@pytest.mark.parametrize("index", [INDEX, STACKS], ids=["single", "stacked"])
@pytest.mark.parametrize("name", [*LEADING, *DENSE])
def test_indexed_equals_its_tensor(name: str, index: Tensor) -> None:
    x = Indexed(ROWS, index, stacked=index is STACKS)
    operation = (LEADING | DENSE)[name]
    found = operation(x)
    assert isinstance(found, Indexed) == (name in LEADING)
    assert torch.equal(dense(found), operation(ROWS[index.long()]))


def test_indexed_has_the_attributes_of_its_tensor() -> None:
    x = Indexed(ROWS, STACKS, stacked=True)
    whole = x.tensor()
    assert (x.shape, x.dtype, x.device, x.dim(), len(x)) == (
        whole.shape, whole.dtype, whole.device, whole.dim(), len(whole)
    )  # fmt: skip
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert torch.equal(other.tensor(), whole)


WHOLE: dict[str, Callable[[Any], Tensor]] = {
    "division of a number": lambda x: 61 // x,
    "remainder of a number": lambda x: 61 % x,
    "and": lambda x: 5 & x,
    "or": lambda x: 5 | x,
    "exclusive or": lambda x: x ^ 5,
    "exclusive or from the left": lambda x: 5 ^ x,
    "sign": lambda x: +x,
}


@pytest.mark.parametrize("name", WHOLE)
def test_operators_of_indexed_whole_numbers_equal_those_of_the_tensor(name: str) -> None:
    x = Indexed(ROWS.long() % 8 + 1, INDEX)
    found = WHOLE[name](x)
    assert type(found) is Tensor and torch.equal(found, WHOLE[name](x.tensor()))


def test_two_indexed_are_compared_by_their_values_and_hashed_by_identity() -> None:
    x, y = Indexed(ROWS, INDEX), Indexed(ROWS, INDEX.flip(0))
    assert torch.equal(x == y, x.tensor() == y.tensor())
    assert len({x, y}) == 2


def test_indexed_rows_are_counted_once() -> None:
    x, y = Indexed(ROWS, INDEX), Indexed(ROWS, INDEX.clone())
    assert num_bytes({"obs": {"a": x}, "next_obs": {"a": y}, "reward": torch.zeros(2)}) == 60 * 4 + 2 * 8 * 4 + 2 * 4
