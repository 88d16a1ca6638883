"""Baselines: predicted returns, which are subtracted from observed returns to reduce the variance of gradients."""

import torch
from torch import Tensor


def linear_baseline(
    obs: Tensor,
    first: Tensor,
    returns: Tensor,
    weight: Tensor,
) -> Tensor:
    """Returns predictions of `returns`, [time, env], by a ridge regression for each environment.

    The features of a timestep are (arXiv 1604.06778, section 5)

        [obs, obs^2, t, t^2, t^3, 1]    with t = (timesteps since the last `first`) / 100

    obs [time, env, n]; first, returns and weight [time, env]. Timesteps of weight 0 are left out of the fit.
    """
    t = _timesteps_of_episode(first) / 100
    t = t.unsqueeze(-1)
    features = torch.cat([obs, obs**2, t, t**2, t**3, torch.ones_like(t)], -1)

    # w = (X' W X + ridge)^-1 X' W y for each environment
    X = features.transpose(0, 1)  # [env, time, features]
    y = returns.T[..., None]  # [env, time, 1]
    XtW = (X * weight.T[..., None]).transpose(1, 2)
    ridge = 1e-5 * torch.eye(X.shape[-1], device=X.device)
    w: Tensor = torch.linalg.solve(XtW @ X + ridge, XtW @ y)
    return (X @ w).squeeze(-1).T


def _timesteps_of_episode(first: Tensor) -> Tensor:
    """Returns the number of timesteps since the start of the episode, or since row 0 if the episode started earlier;
    [time, env]."""
    row = torch.arange(len(first), device=first.device)
    row = row[:, None].expand_as(first)
    first_row = torch.where(first, row, 0).cummax(0).values
    return row - first_row
