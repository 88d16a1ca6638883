"""Prioritised replay draws in proportion to errors, corrects the bias, and drops overwritten rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from scipy.stats import chisquare

from rlrun.buffers.prioritized import Prioritized
from rlrun.buffers.replay import Reading
from rlrun.buffers.sum_tree import TOP, WIDTH, SumTree
from rlrun.config.jobs import jobs
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.settings import ScheduledValue
from rlrun.types import Spec

CPU = torch.device("cpu")
Make = Callable[..., VectorEnv]


def prioritized(
    spec: Spec, capacity: int, alpha: Any = 1.0, beta: float = 1.0, divide_weights: bool = True
) -> Prioritized:
    rewards: Any = {
        "reward_clip": None, "reward_scale": 1.0, "standardize_reward": False, "compression": None, "dtypes": {},
    }  # fmt: skip
    of_draws = {"alpha": alpha, "beta": beta, "divide_weights": divide_weights}
    cfg = Prioritized.Config(capacity=capacity, epsilon=1e-6, **of_draws, **rewards)
    return Prioritized(cfg, spec, Reading(0.9), 0, CPU)


def test_prioritized_replay_never_draws_stacks_with_overwritten_frames() -> None:
    spec = Spec(Box(0, 255, (3, 16, 16), np.uint8), Discrete(2), 1, frame_stack=3)
    buffer = prioritized(spec, 9)
    obs, no = torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.zeros(1, dtype=torch.bool)
    step = {
        "obs": obs,
        "next_obs": obs,
        "executed": torch.zeros(1, dtype=torch.int64),
        "reward": torch.zeros(1),
        "terminated": no,
        "truncated": no,
        "weight": torch.ones(1),
    }
    for _ in range(25):
        buffer.add(step)
        drawn = buffer.flat_index(buffer.tree.get(torch.arange(9)).nonzero().flatten()).tolist()
        assert sorted(drawn) == [*range(*buffer.span)]


def fill(buffer: Prioritized, env: VectorEnv, steps: int) -> None:
    obs = env.reset()
    for _ in range(steps):
        action = torch.zeros(env.num_envs, dtype=torch.int64)
        step, _ = env.step(action)
        buffer.add(step | {"obs": obs})
        obs = step["following"]


@pytest.mark.parametrize("size", [5, 3 * WIDTH + 7, TOP * WIDTH + 5])
def test_sum_tree_sample_equals_the_cumulative_sum_search(size: int) -> None:
    """Compared with a loop over leaves."""
    tree, generator = SumTree(size, CPU), torch.Generator().manual_seed(0)
    priority = torch.arange(size, dtype=torch.float64) % 4  # every fourth leaf has priority 0 and must never be drawn
    tree.set(torch.arange(size), priority)
    uniform = torch.rand(len(tree.levels), 300, generator=generator)
    uniform[:, :2] = torch.tensor([0.0, 1 - 2**-24])  # the smallest and the largest possible numbers
    found = tree.sample(uniform)
    for index, shares in zip(found.tolist(), uniform.T.tolist(), strict=True):
        lo, under = 0, WIDTH ** (len(tree.levels) - 1)  # leaves under a node of the top
        part = priority
        for share in shares:
            sums = torch.stack([piece.sum() for piece in part.split(under)]).cumsum(0)
            node = int((sums <= share * sums[-1]).sum())
            lo, part, under = lo + node * under, part.split(under)[node], under // WIDTH
        assert index == lo
    assert (tree.get(found) > 0).all()


def test_sum_tree_draws_leaves_in_proportion_to_priorities() -> None:
    tree, count = SumTree(3 * WIDTH, CPU), 200_000
    priority = 1.0 + torch.arange(3 * WIDTH) % 7
    tree.set(torch.arange(3 * WIDTH), priority)
    found = tree.sample(torch.rand(len(tree.levels), count, generator=torch.Generator().manual_seed(0)))
    share = priority / priority.sum()
    std = (share * (1 - share) / count).sqrt()
    assert ((found.bincount(minlength=len(share)) / count - share).abs() < 5 * std).all()


def test_sum_tree_set_updates_sums_also_for_repeated_indices() -> None:
    size = 2 * TOP * WIDTH  # of three levels
    tree = SumTree(size, CPU)
    tree.set(torch.tensor([7, size - 1]), torch.tensor([1.0, 3.0]))
    tree.set(torch.tensor([7, 7]), torch.tensor([5.0, 5.0]))
    assert tree.total == 8
    tree.set(torch.tensor([7]), 0.0)
    assert set(tree.sample(torch.linspace(0, 0.999, 50).expand(3, 50)).tolist()) == {size - 1}


def test_prioritized_replay_draws_by_latest_error_and_corrects_by_weights(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 2, kwargs={"length": 100})
    buffer = prioritized(env.spec, 20)
    fill(buffer, env, 10)
    everything = buffer.read(torch.arange(20))
    error = 1.0 + torch.arange(20)
    buffer.feedback(everything, -error)  # its size counts
    batch = buffer.sample(20000)
    share = torch.bincount(batch["index"], minlength=20) / 20000
    torch.testing.assert_close(share, error / error.sum(), atol=0.01, rtol=0)
    expected = 1 / error[batch["index"]]
    torch.testing.assert_close(batch["weight"], expected / expected.max(), rtol=1e-4, atol=1e-6)


ERRORS = torch.logspace(-1, 1, 200, dtype=torch.float64)


def with_errors(make_env: Make, **settings: Any) -> Prioritized:
    """Returns a buffer of 200 rows with errors from 0.1 to 10."""
    env = make_env("rlrun/Counter-v0", 2, kwargs={"length": 100})
    buffer = prioritized(env.spec, 200, **settings)
    fill(buffer, env, 100)
    buffer.feedback(buffer.read(torch.arange(200)), ERRORS)
    return buffer


def p_value(buffer: Prioritized, power: float) -> float:
    """Returns the p-value of the chi-square test that 100,000 draws are in proportion to a power of the errors."""
    count = torch.bincount(buffer.sample(100_000)["index"], minlength=200)
    expected = (ERRORS + 1e-6) ** power
    return float(chisquare(count, 100_000 * expected / expected.sum()).pvalue)


@pytest.mark.parametrize("alpha", [0.4, 0.7])
def test_prioritized_replay_draws_by_powers_of_errors(alpha: float, make_env: Make) -> None:
    buffer = with_errors(make_env, alpha=alpha)
    assert p_value(buffer, alpha) > 0.001
    assert p_value(buffer, 1.0) < 1e-6


def test_stored_priorities_follow_a_schedule_of_alpha(make_env: Make) -> None:
    alpha = torch.tensor(0.4, dtype=torch.float64)
    buffer = with_errors(make_env, alpha=ScheduledValue(0.4, alpha))
    assert p_value(buffer, 0.4) > 0.001
    assert float(buffer.highest) == pytest.approx(10**0.4)
    alpha.fill_(0.7)
    assert p_value(buffer, 0.7) > 0.001
    assert float(buffer.highest) == pytest.approx(10**0.7)
    sums = [level.sum().item() for level in buffer.tree.levels]
    assert sums == pytest.approx([((ERRORS + 1e-6) ** 0.7).sum().item()] * len(sums))
    restored = with_errors(make_env, alpha=ScheduledValue(0.4, alpha))
    restored.load_state_dict(buffer.state_dict())
    assert torch.equal(restored.sample(50)["index"], buffer.sample(50)["index"])
    alpha.fill_(0.705)
    buffer.sample(1)
    assert float(buffer.alpha) == 0.7, "smaller changes wait"
    for end, kept in ((0.0, 0.01), (1.0, 1.0)):
        alpha.fill_(end)
        buffer.sample(1)
        assert float(buffer.alpha) == kept
    assert torch.allclose(buffer.tree.get(torch.arange(200)), ERRORS + 1e-6), "and nothing is lost"
    buffer.feedback(buffer.read(torch.arange(1)), torch.tensor([16.0]))
    assert float(buffer.highest) == pytest.approx(16.0, rel=1e-5)


def test_priorities_with_an_unknown_exponent_stay_as_they_are(make_env: Make) -> None:
    alpha = torch.tensor(0.4, dtype=torch.float64)
    buffer = with_errors(make_env, alpha=ScheduledValue(0.4, alpha))
    before = buffer.tree.get(torch.arange(200))
    buffer.alpha.fill_(-1.0)
    alpha.fill_(0.7)
    buffer.sample(1)
    assert float(buffer.alpha) == 0.7 and torch.equal(buffer.tree.get(torch.arange(200)), before)


def test_weights_that_are_not_divided_make_means_of_draws_unbiased(make_env: Make) -> None:
    buffer = with_errors(make_env, alpha=0.6, divide_weights=False)
    batch = buffer.sample(100_000)
    weighted = batch["weight"] * ERRORS[batch["index"]]
    assert abs(weighted.mean() - ERRORS.mean()) < 3 * weighted.std() / 100_000**0.5
    assert batch["weight"].max() > 1


def test_prioritized_replay_gives_new_rows_the_highest_priority(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 1, kwargs={"length": 100})
    buffer = prioritized(env.spec, 4)
    fill(buffer, env, 4)
    buffer.feedback(buffer.read(torch.arange(4)), torch.tensor([0.5, 7.0, 0.5, 0.5]))
    buffer.feedback(buffer.read(torch.arange(4)), torch.tensor([0.5, 0.5, 0.5, 0.5]))
    fill(buffer, env, 1)  # over row 0
    batch = buffer.sample(2000)
    assert set(batch["index"].tolist()) == {1, 2, 3, 4}
    assert (batch["index"] == 4).float().mean() == pytest.approx(7 / 8.5, abs=0.03)
    for number in batch["index"].unique().tolist():
        assert torch.equal(buffer.read(torch.tensor([number]))["index"], torch.tensor([number]))


def test_prioritized_replay_corrects_the_bias_fully_at_the_end_of_a_run() -> None:
    (buffer,) = (job.values["algo"]["buffer"] for job in jobs(["algo=prioritized_dqn", "env=CartPole", "preset=none"]))
    assert buffer["beta"] == {"name": "linear", "start": 0.4, "end": 1.0, "fraction": 1.0}


def test_prioritized_replay_draws_only_complete_stacks_of_frames(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 1, kwargs={"length": 6})
    frames = Spec(image(), env.spec.action, 1, frame_stack=2)
    buffer = prioritized(frames, 8)
    obs = torch.zeros(1, 2, 20, 20, dtype=torch.uint8)
    for _ in range(21):
        if env.obs is None:
            env.reset()
            continue
        step, _ = env.step(torch.zeros(1, dtype=torch.int64))
        buffer.add(step | {"obs": obs, "next_obs": obs})
    drawn = set(buffer.sample(3000)["index"].tolist())
    assert drawn == set(range(buffer.first, buffer.ring.total - 1))


def image():
    from gymnasium.spaces import Box

    return Box(0, 255, (2, 20, 20), "uint8")
