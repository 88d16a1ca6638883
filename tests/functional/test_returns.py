"""Returns and advantages against arrays worked out by hand and slow loops."""

import pytest
import torch
from torch import Tensor

from rlrun.functional.returns import gae, reverse_recurrence, td_target


def slow_gae(
    r: Tensor, v: Tensor, v_next: Tensor, terminated: Tensor, done: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """Row by row from the end, as the paper writes it."""
    out, flow = torch.zeros_like(r), torch.zeros_like(r[0])
    for t in reversed(range(len(r))):
        delta = r[t] + gamma * v_next[t] * (~terminated[t]) - v[t]
        flow = delta + gamma * gae_lambda * flow * (~done[t])
        out[t] = flow
    return out


def test_a_td_target_bootstraps_as_far_as_its_discount_says() -> None:
    target = td_target(torch.tensor([1.0, 1.0, -2.0]), torch.tensor([0.9, 0.0, 0.81]), torch.tensor([10.0, 10.0, 5.0]))
    assert target.tolist() == pytest.approx([10.0, 1.0, 2.05])


@pytest.mark.parametrize("time", [1, 2, 3, 7, 8, 9, 64, 100])
def test_reverse_recurrence_equals_the_loop_for_every_length(time: int) -> None:
    x, decay = torch.randn(time, 3, dtype=torch.float64), torch.rand(time, 3, dtype=torch.float64)
    y = torch.zeros(3, dtype=torch.float64)
    slow = torch.zeros_like(x)
    for t in reversed(range(time)):
        y = x[t] + (decay[t] * y if t + 1 < time else 0.0)
        slow[t] = y
    given = decay.clone()
    torch.testing.assert_close(reverse_recurrence(x, decay), slow)
    assert torch.equal(decay, given), "its argument was changed"


def test_gae_of_three_steps_is_the_sum_one_writes_down() -> None:
    r, v, v_next = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.5, 0.5]), torch.tensor([0.5, 0.5, 4.0])
    never = torch.zeros(3, dtype=torch.bool)
    advantage = gae(r, v, v_next, never, never, gamma=0.5, gae_lambda=0.5)
    # deltas 0.75, 1.75, 4.5; each flows back by a quarter
    assert advantage.tolist() == [0.75 + (1.75 + 4.5 / 4) / 4, 1.75 + 4.5 / 4, 4.5]


def test_gae_does_not_bootstrap_past_a_termination_but_does_past_a_cut() -> None:
    r, v, v_next = torch.ones(3), torch.zeros(3), torch.full((3,), 10.0)
    middle, never = torch.tensor([False, True, False]), torch.zeros(3, dtype=torch.bool)
    ended = gae(r, v, v_next, middle, middle, gamma=0.5, gae_lambda=1.0)
    cut = gae(r, v, v_next, never, middle, gamma=0.5, gae_lambda=1.0)
    assert ended.tolist() == [6 + 0.5 * 1, 1, 6]
    assert cut.tolist() == [6 + 0.5 * 6, 6, 6]


@pytest.mark.parametrize("gae_lambda", [0.0, 0.95, 1.0])
def test_gae_equals_the_slow_loop_over_many_episodes(gae_lambda: float) -> None:
    time, envs = 37, 5
    r, v, v_next = torch.randn(3, time, envs)
    terminated = torch.rand(time, envs) < 0.15
    done = terminated | (torch.rand(time, envs) < 0.15)
    fast = gae(r, v, v_next, terminated, done, 0.97, gae_lambda)
    torch.testing.assert_close(fast, slow_gae(r, v, v_next, terminated, done, 0.97, gae_lambda))


def test_gae_with_lambda_1_is_the_discounted_return_minus_the_value() -> None:
    r, v = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([5.0, 6.0, 7.0])
    end = torch.tensor([False, False, True])
    advantage = gae(r, v, torch.tensor([6.0, 7.0, 99.0]), end, end, gamma=0.9, gae_lambda=1.0)
    assert (advantage + v).tolist() == pytest.approx([2.71, 1.9, 1.0])
