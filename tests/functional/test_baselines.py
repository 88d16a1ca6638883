"""The linear baseline fits any function of its features, separately for each environment, without masked rows."""

import torch

from rlrun.functional.baselines import linear_baseline


def test_linear_baseline_fits_linear_returns_of_every_environment() -> None:
    torch.manual_seed(0)
    obs = torch.randn(40, 2, 1)
    first = torch.zeros(40, 2, dtype=torch.bool)
    first[[0, 20], 0] = first[[0, 10], 1] = True
    time = torch.stack([torch.arange(40) % 20, torch.cat([torch.arange(10), torch.arange(30)])], 1) / 100
    returns = torch.stack([2 * obs[:, 0, 0] + 3 * time[:, 0], obs[:, 1, 0] ** 2 - 30 * time[:, 1] ** 3 + 1], 1)
    fitted = linear_baseline(obs, first, returns, torch.ones(40, 2))
    torch.testing.assert_close(fitted, returns, rtol=0, atol=0.02)


def test_linear_baseline_ignores_masked_rows() -> None:
    torch.manual_seed(0)
    obs, first = torch.randn(30, 1, 2), torch.zeros(30, 1, dtype=torch.bool)
    first[0] = True
    returns, weight = obs.sum(-1), torch.ones(30, 1)
    returns[20:], weight[20:] = 1e3, 0.0
    fitted = linear_baseline(obs, first, returns, weight)
    torch.testing.assert_close(fitted[:20], returns[:20], rtol=0, atol=0.02)
