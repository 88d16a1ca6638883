"""Actions at which targets of continuous control are computed."""

from torch import Tensor


def smoothed(action_t: Tensor, noise: Tensor, std: float, limit: float) -> Tensor:
    """An action near a target policy's, at which TD3's targets ask (arXiv 1802.09477, eq. 14); both [batch, actions].

    noise: standard normal. It moves an action by at most `limit`, and none out of [-1, 1].
    """
    return (action_t + (std * noise).clamp(-limit, limit)).clamp(-1, 1)
