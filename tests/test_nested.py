"""Trees of arrays and tensors."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces

from rlrun.buffers.packing import nest
from rlrun.envs.stepping.actions import nested, values
from rlrun.envs.stepping.obs_adapter import in_dicts, tuples_as_dicts
from rlrun.nested import dotted, get, index, leaves, mapped, put
from rlrun.networks import inputs
from rlrun.tensors import joined, stack


def random_space(rng: np.random.Generator, depth: int = 3) -> Space:
    """Returns a Dict or Tuple of random spaces; below `depth` levels only spaces without parts."""
    if depth and (depth == 3 or rng.random() < 0.4):
        parts = [random_space(rng, depth - 1) for _ in range(rng.integers(1, 4))]
        if rng.random() < 0.5:
            return spaces.Tuple(parts)
        return spaces.Dict({f"{'zyx'[i]}{rng.integers(9)}": part for i, part in enumerate(parts)})
    shape = tuple(rng.integers(1, 4, rng.integers(3)).tolist())
    dtype = rng.choice(["float32", "float64", "uint8", "int16", "int64"])
    leaf: list[Any] = [
        spaces.Box(0, 9, shape, np.dtype(dtype).type),
        spaces.Discrete(int(rng.integers(1, 5)), start=int(rng.integers(-2, 3))),
        spaces.MultiBinary(shape or 2),
        spaces.MultiDiscrete(rng.integers(1, 5, shape or 2)),
    ]
    chosen: Space = leaf[rng.integers(4)]
    return chosen


def same(one: Any, other: Any) -> bool:
    """Returns whether two values of a space have the same structure, shapes, types and numbers."""
    if isinstance(one, dict):
        return [*one] == [*other] and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other)


def test_random_nests_are_restored_from_their_parts() -> None:
    rng = np.random.default_rng(0)
    for case in range(200):
        space = random_space(rng)
        space.seed(case)
        sample = space.sample()
        again = nested(space, iter([*values(space, sample)]))
        assert same(sample, again), space


def test_random_nests_of_tensors_are_restored_by_names_paths_and_rows() -> None:
    rng = np.random.default_rng(1)
    for case in range(200):
        space = tuples_as_dicts(random_space(rng))
        space.seed(case)
        rows = [mapped(torch.as_tensor, in_dicts(space.sample())) for _ in range(3)]
        tree = rows[0]
        assert same(nest(dotted("obs", tree), "obs", space), tree), space

        paths = [path for path, _ in inputs.leaves(space)]
        assert all(get(tree, path) is leaf for path, leaf in zip(paths, leaves(tree), strict=True)), space
        rebuilt = mapped(lambda leaf: None, tree)
        for path in paths:
            rebuilt = put(rebuilt, path, get(tree, path))
        assert same(rebuilt, tree), space

        stacked = stack(rows)
        assert all(same(index(stacked, row), rows[row]) for row in range(3)), space
        both = joined([stacked, stacked])
        assert same(index(both, slice(3, 6)), stacked), space


def test_put_leaves_the_given_tree_as_it_is() -> None:
    tree: Any = {"a": {"b": 1, "c": 2}, "d": 3}
    new: Any = 9
    assert put(tree, ("a", "b"), new) == {"a": {"b": 9, "c": 2}, "d": 3}
    assert put(tree, (), new) == 9
    assert tree == {"a": {"b": 1, "c": 2}, "d": 3}
    assert get(tree, ("a",)) == {"b": 1, "c": 2} and get(tree, ()) is tree
    with pytest.raises(TypeError, match="no 'e' in int"):
        put(tree, ("d", "e"), new)
    with pytest.raises(KeyError):
        put(tree, ("e",), new)


def test_joined_concatenates_batches_of_nested_observations() -> None:
    obs = {"x": torch.zeros(2, 3), "more": {"y": torch.zeros(2)}}
    others = {"x": torch.ones(1, 3), "more": {"y": torch.ones(1)}}
    both = joined([obs, others])
    assert torch.equal(both["x"], torch.tensor([[0.0] * 3, [0.0] * 3, [1.0] * 3]))
    assert torch.equal(both["more"]["y"], torch.tensor([0.0, 0.0, 1.0]))
