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
    return reverse_recurrence(delta, gamma * gae_lambda * (~done).to(r_t.dtype))


def td_lambda(r_t: Tensor, v_t: Tensor, terminated: Tensor, done: Tensor, gamma: float, td_lambda: float) -> Tensor:
    """Returns G_t = r + gamma * ((1 - lambda) * v_t + lambda * G_{t+1}), and r + gamma * v_t where an episode or the
    batch ends (Sutton and Barto 2018, eq. 12.20); everything [time, ...], v_t and the flags as in `gae`.

    Equal to gae + v_tm1 where v_t is the next row's v_tm1.
    """
    going_on = ~done
    going_on[-1] = False
    flow = td_lambda * going_on.to(r_t.dtype)
    return reverse_recurrence(r_t + gamma * v_t * ~terminated * (1 - flow), gamma * flow)


def monte_carlo(r_t: Tensor, v_t: Tensor, terminated: Tensor, done: Tensor, gamma: float) -> Tensor:
    """Discounted rewards to the end of the episode; v_t stands for what a cut, or the end of the batch, hides."""
    return td_lambda(r_t, v_t, terminated, done, gamma, 1.0)


def n_step(r_t: Tensor, v_t: Tensor, terminated: Tensor, done: Tensor, gamma: float, n: int) -> Tensor:
    """n discounted rewards, then gamma^n * v (arXiv 1602.01783, sec. 4); fewer where an episode or the batch ends."""
    whole = monte_carlo(r_t, v_t, terminated, done, gamma)
    if n >= len(r_t):
        return whole
    # beyond the n-th reward: the difference between what the return knows and what the value says
    beyond = (whole[n:] - v_t[n - 1 : -1]) * gamma**n
    ended = torch.stack([done[i : len(done) - n + i] for i in range(n)]).any(0)
    return torch.cat([whole[:-n] - beyond * ~ended, whole[-n:]])


def vtrace(
    log_ratio: Tensor,
    r_t: Tensor,
    v_tm1: Tensor,
    v_t: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    trace_lambda: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace targets and policy-gradient advantages (arXiv 1802.01561, eq. 1 and sec. 4.2); everything [time, ...].

    log_ratio: log of the learning policy's over the acting policy's probability of the action. The rest as in `gae`.
    """
    ratio = log_ratio.exp()
    rho, c = ratio.clamp(max=rho_clip), trace_lambda * ratio.clamp(max=c_clip)
    delta = rho * (r_t + gamma * v_t * ~terminated - v_tm1)
    target = v_tm1 + reverse_recurrence(delta, gamma * c * ~done)
    after = torch.where(done[:-1], v_t[:-1], target[1:])  # an episode's last successor has no target: its value
    next_target = torch.cat([after, v_t[-1:]])
    return target, rho * (r_t + gamma * next_target * ~terminated - v_tm1)


def retrace(
    log_ratio: Tensor,
    r_t: Tensor,
    q_tm1: Tensor,
    v_t: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    trace_lambda: float = 1.0,
) -> Tensor:
    """Retrace(lambda) targets for q_tm1 (arXiv 1606.02647, eq. 3 and 4); everything [time, ...].

    q_tm1: value of the action taken; v_t: expected action value of the true successor under the learning policy;
    log_ratio: as in `vtrace`. The trace into a row is cut by that row's own ratio.
    """
    c = trace_lambda * log_ratio.exp().clamp(max=1.0)
    c_next = torch.cat([c[1:], torch.zeros_like(c[-1:])])
    delta = r_t + gamma * v_t * ~terminated - q_tm1
    return q_tm1 + reverse_recurrence(delta, gamma * c_next * ~done)
