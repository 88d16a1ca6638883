"""What critics of continuous control learn: targets of one step, at actions that the learning policy would take."""

from torch import Tensor

from rlrun.functional.returns import td_target


def soft_td_target(r_t: Tensor, discount_t: Tensor, q_t: Tensor, log_prob_t: Tensor, temperature: Tensor) -> Tensor:
    """r + discount * (q - temperature * log pi), the soft value of what follows (arXiv 1812.05905, eq. 3); all [batch].

    q_t: the value of an action drawn from the policy, log_prob_t: its log-probability; the rest as in `td_target`.
    """
    return td_target(r_t, discount_t, q_t - temperature * log_prob_t)


def smoothed(action_t: Tensor, noise: Tensor, std: float, limit: float) -> Tensor:
    """An action near a target policy's, at which TD3's targets ask (arXiv 1802.09477, eq. 14); both [batch, actions].

    noise: standard normal. It moves an action by at most `limit`, and none out of [-1, 1].
    """
    return (action_t + (std * noise).clamp(-limit, limit)).clamp(-1, 1)
