"""Discrete actions of every kind, and the masks that forbid some of them."""

import math
from typing import Any

import pytest
import torch
from gymnasium import Space, spaces

from rlrun.core.random import Stream
from rlrun.networks.choices import distribution, legal
from rlrun.spaces import choices

MULTI = spaces.MultiDiscrete([2, 3])
INF = float("inf")


@pytest.mark.parametrize(
    ("space", "sizes"),
    [(spaces.Discrete(4), [4]), (MULTI, [2, 3]), (spaces.MultiBinary(2), [2, 2]), (spaces.Box(0, 1, (2,)), [])],
    ids=str,
)
def test_choices_counts_those_of_every_decision(space: Space, sizes: list[int]) -> None:
    assert choices(space) == sizes


def test_distribution_splits_logits_of_decisions_of_different_size() -> None:
    logits = torch.tensor([[0.0, math.log(3), 0.0, 0.0, math.log(2)]])
    dist = distribution(MULTI, logits, obs=None)
    assert dist.log_prob(torch.tensor([[1, 2]])).exp().tolist() == pytest.approx([3 / 4 * 2 / 4])
    total = sum(dist.log_prob(torch.tensor([[a, b]])).exp().item() for a in range(2) for b in range(3))
    assert total == pytest.approx(1)
    assert dist.mode().tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("space", "mask", "allowed"),
    [
        (spaces.Discrete(3), [0, 1, 0], {(1,)}),
        (spaces.Discrete(3), [1, 0, 1], {(0,), (2,)}),
        (MULTI, [1, 0, 0, 1, 1], {(0, 1), (0, 2)}),
        (spaces.MultiBinary(2), [1, 1, 1, 0], {(0, 0), (1, 0)}),
    ],
    ids=str,
)
def test_distribution_samples_all_legal_actions_and_no_others(space: Space, mask: list[int], allowed: set[Any]) -> None:
    rows = 500
    obs = {"obs": None, "action_mask": torch.tensor(mask).expand(rows, -1)}
    dist = distribution(space, torch.randn(rows, len(mask)), obs)
    drawn = dist.sample(dist.noise(Stream(0, "test"))).reshape(rows, -1)
    assert {tuple(row) for row in drawn.tolist()} == allowed
    assert {tuple(row) for row in dist.mode().reshape(rows, -1).tolist()} <= allowed
    assert torch.isfinite(dist.entropy()).all()


def test_legal_scores_forbidden_actions_below_all_others() -> None:
    values, mask = torch.tensor([[-3.0, 9.0], [-3.0, 9.0]]), torch.tensor([[1, 0], [1, 1]])
    assert legal(values, {"obs": None, "action_mask": mask}).tolist() == [[-3, -INF], [-3, 9]]
    assert legal(values, {"obs": None}) is values and legal(values, values) is values
