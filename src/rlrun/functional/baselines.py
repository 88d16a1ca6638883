"""Baselines: what returns were to be expected, to be subtracted from them."""

import torch
from torch import Tensor


def linear_baseline(obs: Tensor, first: Tensor, returns: Tensor, weight: Tensor) -> Tensor:
    """Returns [time, env] as a linear function of features, fitted to those of each environment by ridge regression.

    Features: obs [time, env, n], its square, and powers of the time since `first`, in hundreds of steps (arXiv
    1604.06778, section 5). Rows of weight 0 are not fitted.
    """
    now = torch.arange(len(first), device=first.device)[:, None].expand_as(first)
    time = ((now - torch.where(first, now, 0).cummax(0).values) / 100)[..., None]
    x = torch.cat([obs, obs**2, time, time**2, time**3, torch.ones_like(time)], -1).transpose(0, 1)  # [env, time, f]
    weighted = (x * weight.T[..., None]).transpose(1, 2)
    ridge = 1e-5 * torch.eye(x.shape[-1], device=x.device)
    fitted = torch.linalg.solve(weighted @ x + ridge, weighted @ returns.T[..., None])
    return (x @ fitted).squeeze(-1).T
