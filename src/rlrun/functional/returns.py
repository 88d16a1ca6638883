"""Returns and advantages of transitions [time, ...], one row for each timestep.

The arguments of one row belong to one transition, and their names are those of rlax: v_tm1 is the value of the
observation acted on; r_t and v_t are the reward and the value of the true successor, which is the final observation
where an episode ended. `terminated` stops bootstrapping; `done`, terminated or truncated, stops sums over rows. A
tensor `gamma` holds one discount for every row. In formulas, x_{t+1} is x in the row after that of x_t, and lambda is
`gae_lambda` or `trace_lambda`.
"""

import torch
from torch import Tensor


def td_target(
    r_t: Tensor,
    discount_t: Tensor,
    v_t: Tensor,
) -> Tensor:
    """Returns the one-step target r + discount * v; discount_t is gamma^n, and 0 where the episode terminated."""
    return r_t + discount_t * v_t


def td_error(
    r_t: Tensor,
    v_tm1: Tensor,
    v_t: Tensor,
    terminated: Tensor,
    gamma: float | Tensor,
) -> Tensor:
    """Returns delta_t = r_t + gamma v_t (1 - terminated_t) - v_tm1."""
    return r_t + gamma * v_t * ~terminated - v_tm1


def reverse_recurrence(x_t: Tensor, decay_t: Tensor) -> Tensor:
    """Returns y_t = x_t + decay_t y_{t+1}, with y_t = x_t in the last row; x_t and decay_t are [time, ...].

    Computed by doubling (Hillis and Steele, 1986), which takes log2(time) vector operations instead of `time`. Every
    round doubles `span`, the number of rows that y of a row sums. `decay` of a row is the factor of the first row that
    its sum does not reach.
    """
    y = x_t
    decay = decay_t
    span = 1
    length = x_t.shape[0]
    while span < length:
        y_start = y[:-span] + decay[:-span] * y[span:]
        y = torch.cat([y_start, y[-span:]])
        decay_start = decay[:-span] * decay[span:]
        decay = torch.cat([decay_start, torch.zeros_like(decay[-span:])])
        span *= 2
    return y


def gae(
    r_t: Tensor,
    v_tm1: Tensor,
    v_t: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float | Tensor,
    gae_lambda: float,
) -> Tensor:
    """Returns generalised advantage estimates A_t (arXiv 1506.02438, eq. 16); everything [time, ...].

        delta_t = r_t + gamma v_t (1 - terminated_t) - v_tm1
        A_t = delta_t + gamma lambda (1 - done_t) A_{t+1}

    A truncated step bootstraps from v_t, but A_t sums no row of the next episode.
    """
    delta = td_error(r_t, v_tm1, v_t, terminated, gamma)
    not_done = (~done).to(r_t.dtype)
    decay = gamma * gae_lambda * not_done
    return reverse_recurrence(delta, decay)


def td_lambda(
    r_t: Tensor,
    v_t: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float | Tensor,
    trace_lambda: float,
) -> Tensor:
    """Returns lambda-returns G_t (Sutton and Barto 2018, eq. 12.20); everything [time, ...].

        G_t = r_t + gamma ((1 - lambda) v_t + lambda G_{t+1})
        G_t = r_t + gamma v_t (1 - terminated_t)    where an episode or the batch ends

    Equal to gae + v_tm1 if v_t of every row equals v_tm1 of the next row.
    """
    has_next = ~done
    has_next[-1] = False  # the batch ends
    trace = trace_lambda * has_next.to(r_t.dtype)
    bootstrap = gamma * v_t * ~terminated * (1 - trace)
    return reverse_recurrence(r_t + bootstrap, gamma * trace)


def monte_carlo(
    r_t: Tensor,
    v_t: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float | Tensor,
) -> Tensor:
    """Returns discounted sums of the rewards to the end of the episode, [time, ...].

    Where an episode is truncated or the batch ends, gamma v_t stands for the rewards that follow.
    """
    return td_lambda(r_t, v_t, terminated, done, gamma, 1.0)


def compare_through(
    r_t: Tensor,
    v_t: Tensor,
    switch_tm1: Tensor,
    switch_t: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
) -> Tensor:
    """Returns compare-through targets (TAAC; arXiv 2104.06521); everything [time, ...].

        G_t = r_t + gamma G_{t+1}                   if the same trajectory of actions goes on in the next row
        G_t = r_t + gamma v_t (1 - terminated_t)    if a switch replaces it there, or an episode or the batch ends

    At every timestep TAAC's switch keeps or replaces the trajectory that its actions follow, such as a repeated action.
    switch_tm1: whether it replaced the trajectory before the action of a row was chosen, as stored. switch_t: whether
    it replaces the trajectory at the successor of a row under the current policy. `done` is also true where the next
    row is not the next timestep.
    """
    ends = switch_t | done
    ends[:-1] |= switch_tm1[1:]
    return monte_carlo(r_t, v_t, terminated, ends, gamma)


def n_step(
    r_t: Tensor,
    v_t: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    n: int,
) -> Tensor:
    """Returns n-step returns (arXiv 1602.01783, sec. 4), with fewer rewards if the episode or the batch ends earlier.

        G^n_t = r_t + gamma r_{t+1} + ... + gamma^{n-1} r_{t+n-1} + gamma^n v_{t+n-1}

    Computed from the Monte Carlo returns G_t. If no episode ends in the n rows, G^n_t and G_t have the same first n
    rewards, and

        G^n_t = G_t - gamma^n (G_{t+n} - v_{t+n-1})

    If one ends there, G^n_t = G_t.
    """
    monte_carlo_return = monte_carlo(r_t, v_t, terminated, done, gamma)
    time = len(r_t)
    if n >= time:
        return monte_carlo_return
    value_at_n = v_t[n - 1 : -1]
    beyond_n = (monte_carlo_return[n:] - value_at_n) * gamma**n
    done_at_step = []
    for k in range(n):
        done_at_step.append(done[k : time - n + k])
    episode_ended = torch.stack(done_at_step).any(0)
    n_step_return = monte_carlo_return[:-n] - beyond_n * ~episode_ended
    return torch.cat([n_step_return, monte_carlo_return[-n:]])


def vtrace(
    log_ratio: Tensor,
    r_t: Tensor,
    v_tm1: Tensor,
    v_t: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float | Tensor,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    trace_lambda: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Returns V-trace targets vs_t and policy-gradient advantages (arXiv 1802.01561, eq. 1 and sec. 4.2); everything
    [time, ...].

        rho_t = min(rho_clip, ratio_t),  c_t = lambda min(c_clip, ratio_t)
        vs_t = v_tm1 + x_t,  x_t = rho_t delta_t + gamma c_t (1 - done_t) x_{t+1}
        advantage_t = rho_t (r_t + gamma (1 - terminated_t) (lambda vs_{t+1} + (1 - lambda) v_t) - v_tm1)

    delta_t: as in `gae`. log_ratio: log-probability of the action under the learning policy, minus that under the
    policy that acted; ratio_t is its exponential. Where an episode or the batch ends, v_t takes the place of vs_{t+1}.
    The advantage mixes vs_{t+1} and v_t by lambda, as rlax does; the paper's advantage has vs_{t+1} alone. Advantages
    and targets are therefore those of GAE if both policies are equal, the clips are at least 1, and v_t equals v_tm1 of
    the next row.
    """
    ratio = log_ratio.exp()
    rho = ratio.clamp(max=rho_clip)
    c = trace_lambda * ratio.clamp(max=c_clip)
    delta = rho * td_error(r_t, v_tm1, v_t, terminated, gamma)
    vs = v_tm1 + reverse_recurrence(delta, gamma * c * ~done)
    next_v = v_t[:-1]
    next_vs = trace_lambda * vs[1:] + (1 - trace_lambda) * next_v
    next_vs = torch.where(done[:-1], next_v, next_vs)
    next_vs = torch.cat([next_vs, v_t[-1:]])
    advantage = rho * td_error(r_t, v_tm1, next_vs, terminated, gamma)
    return vs, advantage


def retrace(
    log_ratio: Tensor,
    r_t: Tensor,
    q_tm1: Tensor,
    v_t: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float | Tensor,
    trace_lambda: float = 1.0,
) -> Tensor:
    """Returns Retrace(lambda) targets for q_tm1 (arXiv 1606.02647, eq. 3 and 4); everything [time, ...].

        c_t = lambda min(1, ratio_t)
        target_t = q_tm1 + x_t,  x_t = delta_t + gamma c_{t+1} (1 - done_t) x_{t+1}

    q_tm1: value of the action taken. v_t: expected action value of the true successor under the learning policy.
    delta_t: as in `gae`, with q_tm1 in the place of v_tm1. ratio_t, log_ratio: as in `vtrace`.
    """
    ratio = log_ratio.exp()
    c = trace_lambda * ratio.clamp(max=1.0)
    no_trace = torch.zeros_like(c[-1:])
    c_next = torch.cat([c[1:], no_trace])
    delta = td_error(r_t, q_tm1, v_t, terminated, gamma)
    return q_tm1 + reverse_recurrence(delta, gamma * c_next * ~done)
