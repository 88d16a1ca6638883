"""Targets of SAC and TD3 by hand: past ends, at certain and impossible actions, and at the bounds of actions."""

import pytest
import torch

from rlrun.functional.targets import smoothed, soft_td_target


def test_what_follows_is_worth_its_value_and_the_surprise_of_the_action() -> None:
    r, q, log_prob = torch.tensor([1.0, 1.0, -2.0]), torch.tensor([10.0, 10.0, 5.0]), torch.tensor([-0.5, -0.5, 2.0])
    discount = torch.tensor([0.9, 0.0, 0.81])  # goes on, terminated, two steps on
    target = soft_td_target(r, discount, q, log_prob, torch.tensor(0.2))
    assert target.tolist() == pytest.approx([1 + 0.9 * 10.1, 1.0, -2 + 0.81 * 4.6])


def test_without_a_temperature_it_is_the_plain_target() -> None:
    one = torch.ones(1)
    assert soft_td_target(one, 0.5 * one, 8 * one, 1e4 * one, torch.tensor(0.0)).tolist() == [5.0]


def test_every_column_of_a_reward_vector_has_its_target() -> None:
    """The entropy has the last; [batch 1, columns 3]."""
    r, q, cost = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[4.0, 8.0, 6.0]]), torch.tensor([[0.0, 0.0, -3.0]])
    target = soft_td_target(r, torch.tensor([[0.5]]), q, cost, torch.tensor(2.0))
    assert target.tolist() == [[3.0, 6.0, 6.0]]


def test_actions_are_moved_by_noise_up_to_a_limit_and_stay_within_bounds() -> None:
    action = torch.tensor([[0.0], [0.0], [0.0], [0.9], [-1.0], [1.0]])
    noise = torch.tensor([[1.0], [-100.0], [2.0], [2.0], [-1.0], [-5.0]])
    moved = smoothed(action, noise, std=0.2, limit=0.5)
    assert moved.flatten().tolist() == pytest.approx([0.2, -0.5, 0.4, 1.0, -1.0, 0.5])


def test_without_noise_the_action_is_the_policys() -> None:
    action = torch.tensor([[0.3, -1.0]])
    assert torch.equal(smoothed(action, torch.full((1, 2), 7.0), std=0.0, limit=0.0), action)
