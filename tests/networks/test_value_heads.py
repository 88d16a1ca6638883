"""Heads of value networks: shapes, and what dueling takes apart."""

import pytest
import torch
from gymnasium.spaces import Box

from rlrun.networks.heads import ActionValues, Dueling
from rlrun.networks.torsos import LinearTorso


@pytest.mark.parametrize("kind", [ActionValues, Dueling])
@pytest.mark.parametrize("size", [1, 7])
def test_every_action_has_its_numbers(kind: type[ActionValues], size: int) -> None:
    assert kind(LinearTorso(None, [Box(-1, 1, (4,))], None), 3, size)(torch.randn(5, 4)).shape == (5, 3, size)


def test_only_differences_of_advantages_count_and_rows_stand_alone() -> None:
    head, obs = Dueling(LinearTorso(None, [Box(-1, 1, (4,))], None), 3, 2), torch.randn(5, 4)
    before = head(obs)
    torch.testing.assert_close(before.mean(1), head.value(obs))
    torch.testing.assert_close(head(obs[2:3]), before[2:3])
    with torch.no_grad():
        head.output.bias.add_(torch.tensor([1.0, -3.0]).repeat(3))  # the same for every action
    torch.testing.assert_close(head(obs), before)
