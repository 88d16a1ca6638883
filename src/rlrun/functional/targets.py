"""Actions at which targets of continuous control are computed."""

from torch import Tensor


def smoothed(
    action_t: Tensor,
    noise: Tensor,
    std: float,
    limit: float,
) -> Tensor:
    """Returns the smoothed action of a target policy (TD3: arXiv 1802.09477, eq. 14); both [batch, actions].

    noise: standard normal. It changes an action by at most `limit`, and within [-1, 1].
    """
    clipped_noise = (std * noise).clamp(-limit, limit)
    return (action_t + clipped_noise).clamp(-1, 1)
