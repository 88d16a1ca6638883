"""Returns and advantages. Time is the first dimension; `terminated` stops bootstrapping, `done` stops summing."""

import torch
from torch import Tensor


def td_target(r_t: Tensor, discount_t: Tensor, v_t: Tensor) -> Tensor:
    """One-step target r + discount * v. discount_t is gamma^n where the episode goes on, 0 where it terminated."""
    return r_t + discount_t * v_t


def reverse_recurrence(x_t: Tensor, decay_t: Tensor) -> Tensor:
    """y_t = x_t + decay_t * y_{t+1}, with y_T = x_T; both [time, ...].

    By doubling (Hillis and Steele, 1986): log2(time) vector operations instead of `time` of them, on any device.
    """
    y, decay, reach, length = x_t, decay_t, 1, x_t.shape[0]
    while reach < length:
        y = torch.cat([y[:-reach] + decay[:-reach] * y[reach:], y[-reach:]])
        decay = torch.cat([decay[:-reach] * decay[reach:], torch.zeros_like(decay[-reach:])])
        reach *= 2
    return y


def gae(
    r_t: Tensor, v_tm1: Tensor, v_t: Tensor, terminated: Tensor, done: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """Generalised advantage estimation (arXiv 1506.02438, eq. 16); everything [time, ...].

    v_tm1 is the value of the observation acted on, v_t that of its true successor (the final observation where an
    episode ended). `done` is terminated or truncated: a truncated step still bootstraps, but nothing flows across it.
    """
    delta = r_t + gamma * v_t * ~terminated - v_tm1
    return reverse_recurrence(delta, gamma * gae_lambda * ~done)
