import json
import math
import random
import struct

import numpy as np
import pytest
import torch

from rlrun.snapshot import tensors as t
from rlrun.snapshot.tree import decode, encode


def same(a, b) -> bool:
    """Whether two trees are equal bit for bit, including types and order of keys."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and t.raw(a) == t.raw(b)
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return a == b


def through(state):
    skeleton, tensors = encode(state)
    return decode(json.loads(json.dumps(skeleton)), tensors)


LEAVES = [
    None, True, False, 0, -1, 2**63, -(2**200), 10**5000, 0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan, -math.nan,
    "", "a\n\x00\ud800\U0001f600", "$tensor", b"", b"\x00\xff", (), [], {}, {"$int": 1}, {"a/b": {"~c": 1}}, {"": 2},
    {1: "x", None: "y", (1, 2): b"z", False: 2.5, "s": 3}, np.float64(0.1), np.int8(-3), np.bool_(True),
    np.array(3, np.uint64), np.zeros((0, 3), np.int16), np.arange(6.0).reshape(2, 3).T,
    np.array([2**64 - 1], np.uint64), np.array([True, False]), np.array([math.nan, -0.0], np.float16),
    torch.tensor(1.5), torch.zeros(0, 4), torch.zeros(5)[::5],
    torch.arange(6).reshape(2, 3).t(), torch.randn(3, dtype=torch.bfloat16), torch.tensor([True]),
    torch.arange(3, dtype=torch.uint8), torch.zeros(1).expand(4), torch.tensor([math.inf, math.nan]).double(),
]  # fmt: skip


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: type(leaf).__name__)
def test_snapshot_tree_round_trips_every_leaf_type(leaf):
    assert same(through({"a": leaf, "b": [leaf, (leaf,)]}), {"a": leaf, "b": [leaf, (leaf,)]})


def random_tree(rng: random.Random, depth: int):
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(LEAVES)
    children = [random_tree(rng, depth - 1) for _ in range(rng.randrange(4))]
    keys = [rng.choice(["k", "a/b", "a", "~", "$x", 0, 1, (0,), None]) for _ in children]
    return rng.choice([children, tuple(children), dict(zip(keys, children, strict=True))])


def test_snapshot_tree_round_trips_random_trees():
    rng = random.Random(0)
    for _ in range(300):
        state = {name: random_tree(rng, 4) for name in ("agent.a", "agent.a/0", "b~1", "b/")}
        assert same(through(state), state)


def test_snapshot_tree_escapes_similar_names():
    state = {"a/0": torch.tensor(1), "a": [torch.tensor(2)], "a~10": torch.tensor(3), "a~1": [torch.tensor(4)]}
    _, tensors = encode(state)
    assert len(tensors) == 4
    assert same(through(state), state)


def test_snapshot_tree_encoding_copies():
    weight, array, items = torch.zeros(2), np.zeros(2), [1]
    skeleton, tensors = encode({"w": weight, "a": array, "l": items})
    weight += 1
    array += 1
    items.append(2)
    assert same(decode(skeleton, tensors), {"w": torch.zeros(2), "a": np.zeros(2), "l": [1]})


@pytest.mark.parametrize(
    "leaf",
    [object(), {1, 2}, np.array([object()]), np.array(["a"]), np.zeros(2, ">f4"), np.zeros(1, np.complex128),
     torch.zeros(2, dtype=torch.complex128), torch.eye(2).to_sparse(), 1j, np.random.default_rng()],
    ids=lambda leaf: type(leaf).__name__,
)  # fmt: skip
def test_snapshot_tree_refuses_unsupported_leaves_with_their_place(leaf):
    with pytest.raises(TypeError, match="env/stats/0: "):
        encode({"env": {"stats": [leaf]}})


def test_names_that_the_files_cannot_carry_are_refused():
    for name in ("$a", "__metadata__", "a\n", 3):
        with pytest.raises(TypeError, match="state names"):
            encode({name: torch.zeros(1)})
