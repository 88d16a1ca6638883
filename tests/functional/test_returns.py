"""Returns and advantages, compared with arrays computed by hand and with slow loops."""

import pytest
import torch
from torch import Tensor

from rlrun.functional.returns import (
    gae,
    monte_carlo,
    n_step,
    retrace,
    reverse_recurrence,
    td_lambda,
    td_target,
    vtrace,
)


def slow_gae(
    r: Tensor, v: Tensor, v_next: Tensor, terminated: Tensor, done: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """GAE as in the paper, by a loop from the last row."""
    out, flow = torch.zeros_like(r), torch.zeros_like(r[0])
    for t in reversed(range(len(r))):
        delta = r[t] + gamma * v_next[t] * (~terminated[t]) - v[t]
        flow = delta + gamma * gae_lambda * flow * (~done[t])
        out[t] = flow
    return out


def test_td_target_bootstraps_by_its_discount() -> None:
    target = td_target(torch.tensor([1.0, 1.0, -2.0]), torch.tensor([0.9, 0.0, 0.81]), torch.tensor([10.0, 10.0, 5.0]))
    assert target.tolist() == pytest.approx([10.0, 1.0, 2.05])


@pytest.mark.parametrize("time", [1, 2, 3, 7, 8, 9, 64, 100])
def test_reverse_recurrence_equals_the_loop(time: int) -> None:
    x, decay = torch.randn(time, 3, dtype=torch.float64), torch.rand(time, 3, dtype=torch.float64)
    y = torch.zeros(3, dtype=torch.float64)
    slow = torch.zeros_like(x)
    for t in reversed(range(time)):
        y = x[t] + (decay[t] * y if t + 1 < time else 0.0)
        slow[t] = y
    given = decay.clone()
    torch.testing.assert_close(reverse_recurrence(x, decay), slow)
    assert torch.equal(decay, given), "its argument was changed"


def test_gae_of_three_steps_by_hand() -> None:
    r, v, v_next = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.5, 0.5]), torch.tensor([0.5, 0.5, 4.0])
    never = torch.zeros(3, dtype=torch.bool)
    advantage = gae(r, v, v_next, never, never, gamma=0.5, gae_lambda=0.5)
    # deltas 0.75, 1.75, 4.5; each flows back by a quarter
    assert advantage.tolist() == [0.75 + (1.75 + 4.5 / 4) / 4, 1.75 + 4.5 / 4, 4.5]


def test_gae_bootstraps_truncated_but_not_terminated_steps() -> None:
    r, v, v_next = torch.ones(3), torch.zeros(3), torch.full((3,), 10.0)
    middle, never = torch.tensor([False, True, False]), torch.zeros(3, dtype=torch.bool)
    ended = gae(r, v, v_next, middle, middle, gamma=0.5, gae_lambda=1.0)
    cut = gae(r, v, v_next, never, middle, gamma=0.5, gae_lambda=1.0)
    assert ended.tolist() == [6 + 0.5 * 1, 1, 6]
    assert cut.tolist() == [6 + 0.5 * 6, 6, 6]


@pytest.mark.parametrize("is_truncated", [False, True])
@pytest.mark.parametrize("trace_lambda", [0.0, 0.5, 1.0])
def test_constant_reward_has_no_td_error_at_its_value(trace_lambda: float, is_truncated: bool) -> None:
    """V = r / (1 - gamma) is the value of a constant reward, whether an episode is cut or not."""
    gamma, time = 0.9, 50
    reward, value = torch.full((time, 2), 0.3), torch.full((time, 2), 0.3 / (1 - gamma))
    never = torch.zeros(time, 2, dtype=torch.bool)
    done = never.clone()
    done[time // 3] = is_truncated
    advantage = gae(reward, value, value, never, done, gamma, trace_lambda)
    target = td_lambda(reward, value, never, done, gamma, trace_lambda)
    assert advantage.abs().max() < 1e-5 and (target - value).abs().max() < 1e-5


SHAPES = pytest.mark.parametrize(("time", "envs"), [(1, 1), (1, 4), (2, 3), (23, 1), (37, 5)])


@SHAPES
@pytest.mark.parametrize("gae_lambda", [0.0, 0.95, 1.0])
def test_gae_equals_the_loop_over_many_episodes(time: int, envs: int, gae_lambda: float) -> None:
    r, v, v_next = torch.randn(3, time, envs)
    terminated = torch.rand(time, envs) < 0.15
    done = terminated | (torch.rand(time, envs) < 0.15)
    fast = gae(r, v, v_next, terminated, done, 0.97, gae_lambda)
    torch.testing.assert_close(fast, slow_gae(r, v, v_next, terminated, done, 0.97, gae_lambda))


def test_gae_with_lambda_1_is_the_return_minus_the_value() -> None:
    r, v = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([5.0, 6.0, 7.0])
    end = torch.tensor([False, False, True])
    advantage = gae(r, v, torch.tensor([6.0, 7.0, 99.0]), end, end, gamma=0.9, gae_lambda=1.0)
    assert (advantage + v).tolist() == pytest.approx([2.71, 1.9, 1.0])


def episodes(time: int, envs: int) -> tuple[Tensor, ...]:
    """Returns random rewards, values and episode ends; v_t of a row is v_tm1 of the next within an episode."""
    r, v_tm1, v_t = torch.randn(3, time, envs, dtype=torch.float64)
    terminated = torch.rand(time, envs) < 0.15
    done = terminated | (torch.rand(time, envs) < 0.15)
    v_t[:-1] = torch.where(done[:-1], v_t[:-1], v_tm1[1:])
    return r, v_tm1, v_t, terminated, done


def slow_n_step(r: Tensor, v: Tensor, terminated: Tensor, done: Tensor, gamma: float, n: int) -> Tensor:
    """n-step returns by a loop over rewards, forwards from every row."""
    out = torch.zeros_like(r)
    for t in range(len(r)):
        for env in range(r.shape[1]):
            discount = 1.0
            for i in range(t, min(t + n, len(r))):
                out[t, env] += discount * r[i, env]
                discount *= gamma
                if done[i, env] or i == min(t + n, len(r)) - 1:
                    out[t, env] += discount * v[i, env] * (not terminated[i, env])
                    break
    return out


@SHAPES
@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_n_step_returns_equal_the_loop(time: int, envs: int, n: int) -> None:
    r, _, v, terminated, done = episodes(time, envs)
    torch.testing.assert_close(
        n_step(r, v, terminated, done, 0.9, n), slow_n_step(r, v, terminated, done, 0.9, n), msg=f"n={n}"
    )


@SHAPES
def test_monte_carlo_returns_bootstrap_at_the_end(time: int, envs: int) -> None:
    r, _, v, terminated, done = episodes(time, envs)
    torch.testing.assert_close(monte_carlo(r, v, terminated, done, 0.9), slow_n_step(r, v, terminated, done, 0.9, time))


@SHAPES
@pytest.mark.parametrize("trace", [0.0, 0.3, 0.95, 1.0])
def test_td_lambda_returns_are_the_mixture_of_n_step_returns(time: int, envs: int, trace: float) -> None:
    r, v_tm1, v_t, terminated, done = episodes(time, envs)
    fast = td_lambda(r, v_t, terminated, done, 0.9, trace)
    # sum of (1 - lambda) lambda^(n-1) G_n; the last n has the remaining weight
    mixture = sum(
        (1 - trace) * trace ** (n - 1) * slow_n_step(r, v_t, terminated, done, 0.9, n) for n in range(1, time)
    )
    mixture = mixture + trace ** (time - 1) * slow_n_step(r, v_t, terminated, done, 0.9, time)
    torch.testing.assert_close(fast, mixture)
    torch.testing.assert_close(fast, gae(r, v_tm1, v_t, terminated, done, 0.9, trace) + v_tm1)


def test_td_lambda_and_n_step_returns_of_three_steps_by_hand() -> None:
    r, v = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([10.0, 20.0, 40.0])
    no, last = torch.tensor([False] * 3), torch.tensor([False, False, True])
    assert monte_carlo(r, v, last, last, 0.5).tolist() == [3.0, 4.0, 4.0]
    assert monte_carlo(r, v, no, last, 0.5).tolist() == [8.0, 14.0, 24.0], "a cut bootstraps from the true successor"
    assert monte_carlo(r, v, no, no, 0.5).tolist() == [8.0, 14.0, 24.0], "and so does the end of the batch"
    assert n_step(r, v, last, last, 0.5, 1).tolist() == [6.0, 12.0, 4.0]
    assert n_step(r, v, last, last, 0.5, 2).tolist() == [7.0, 4.0, 4.0]
    assert td_lambda(r, v, last, last, 0.5, 0.5).tolist() == [1 + 0.5 * (5 + 4), 2 + 0.5 * (10 + 2), 4.0]


def slow_vtrace(
    log_ratio: Tensor, r: Tensor, v: Tensor, v_next: Tensor, terminated: Tensor, done: Tensor, gamma: float,
    rho_clip: float, c_clip: float, trace: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Equation 1 as printed: for every row a sum over all following rows, with products of traces."""
    time, envs = r.shape
    target, advantage = v.clone(), torch.zeros_like(r)
    ratio = log_ratio.exp()
    for env in range(envs):
        for s in reversed(range(time)):
            product = 1.0
            for t in range(s, time):
                rho = min(rho_clip, float(ratio[t, env]))
                bootstrap = 0.0 if terminated[t, env] else gamma * v_next[t, env]
                target[s, env] += gamma ** (t - s) * product * rho * (r[t, env] + bootstrap - v[t, env])
                product *= trace * min(c_clip, float(ratio[t, env]))
                if done[t, env]:
                    break
            after = v_next[s, env]
            if not done[s, env] and s < time - 1:
                after = trace * target[s + 1, env] + (1 - trace) * v_next[s, env]
            bootstrap = 0.0 if terminated[s, env] else gamma * after
            advantage[s, env] = min(rho_clip, float(ratio[s, env])) * (r[s, env] + bootstrap - v[s, env])
    return target, advantage


@SHAPES
@pytest.mark.parametrize(("rho_clip", "c_clip", "trace"), [(1.0, 1.0, 1.0), (2.0, 0.7, 0.9), (1e9, 1e9, 1.0)])
def test_vtrace_equals_the_formula_of_the_paper(
    time: int, envs: int, rho_clip: float, c_clip: float, trace: float
) -> None:
    r, v_tm1, v_t, terminated, done = episodes(time, envs)
    log_ratio = torch.randn(time, envs, dtype=torch.float64)
    given = (log_ratio, r, v_tm1, v_t, terminated, done, 0.9, rho_clip, c_clip, trace)
    for fast, slow in zip(vtrace(*given), slow_vtrace(*given), strict=True):
        torch.testing.assert_close(fast, slow)


@SHAPES
def test_vtrace_on_policy_is_the_return(time: int, envs: int) -> None:
    r, v_tm1, v_t, terminated, done = episodes(time, envs)
    target, advantage = vtrace(torch.zeros_like(r), r, v_tm1, v_t, terminated, done, 0.9)
    whole = monte_carlo(r, v_t, terminated, done, 0.9)
    torch.testing.assert_close(target, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(advantage, whole - v_tm1, rtol=1e-12, atol=1e-12)


@SHAPES
@pytest.mark.parametrize("trace_lambda", [0.0, 0.95, 1.0])
def test_vtrace_on_policy_is_gae(time: int, envs: int, trace_lambda: float) -> None:
    given = episodes(time, envs)
    target, advantage = vtrace(torch.zeros_like(given[0]), *given, 0.9, trace_lambda=trace_lambda)
    expected = gae(*given, 0.9, trace_lambda)
    torch.testing.assert_close(advantage, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(target, expected + given[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [-20.0, 20.0])
def test_vtrace_is_finite_for_extreme_ratios(size: float) -> None:
    r, v_tm1, v_t, terminated, done = episodes(37, 5)
    target, advantage = vtrace(torch.full_like(r, size), r, v_tm1, v_t, terminated, done, 0.99)
    assert torch.isfinite(target).all() and torch.isfinite(advantage).all()
    assert target.abs().max() < 1e3


@pytest.mark.parametrize("rho_clip", [1.0, 10.0])
def test_vtrace_fixed_point_is_the_value_of_the_clipped_policy(rho_clip: float) -> None:
    mu, pi, rewards, gamma = torch.tensor([0.8, 0.2]), torch.tensor([0.3, 0.7]), torch.tensor([0.0, 1.0]), 0.5
    clipped = torch.minimum(rho_clip * mu, pi)
    expected = float((clipped / clipped.sum() * rewards).sum() / (1 - gamma))  # a single state that continues forever
    never, value, ratio = torch.zeros(8, 1, dtype=torch.bool), torch.zeros(()), pi / mu
    for _ in range(60):  # dynamic programming: the expected one-row target under the acting policy
        v = value.expand(1, 1)
        updates = [
            vtrace(ratio[a].log().view(1, 1), rewards[a].view(1, 1), v, v, never[:1], never[:1], gamma, rho_clip)[0]
            for a in (0, 1)
        ]
        value = sum(mu[a] * updates[a] for a in (0, 1)).view(())
    assert value.item() == pytest.approx(expected, abs=1e-5)


@SHAPES
@pytest.mark.parametrize("trace", [0.0, 0.9, 1.0])
def test_retrace_equals_the_formula_of_the_paper(time: int, envs: int, trace: float) -> None:
    r, q, v_t, terminated, done = episodes(time, envs)
    log_ratio = torch.randn(time, envs, dtype=torch.float64)
    slow = q.clone()
    for env in range(envs):
        for s in range(time):
            product = 1.0
            for t in range(s, time):
                if t > s:
                    product *= 0.9 * trace * min(1.0, float(log_ratio[t, env].exp()))
                bootstrap = 0.0 if terminated[t, env] else 0.9 * v_t[t, env]
                slow[s, env] += product * (r[t, env] + bootstrap - q[t, env])
                if done[t, env]:
                    break
    torch.testing.assert_close(retrace(log_ratio, r, q, v_t, terminated, done, 0.9, trace), slow)


def test_gae_td_lambda_n_step_vtrace_and_retrace_leave_their_arguments_unchanged() -> None:
    r, v_tm1, v_t, terminated, done = given = episodes(9, 2)
    before = [tensor.clone() for tensor in given]
    td_lambda(r, v_t, terminated, done, 0.9, 0.9)
    n_step(r, v_t, terminated, done, 0.9, 3)
    vtrace(r, r, v_tm1, v_t, terminated, done, 0.9)
    retrace(r, r, v_tm1, v_t, terminated, done, 0.9)
    assert all(torch.equal(tensor, old) for tensor, old in zip(given, before, strict=True))
