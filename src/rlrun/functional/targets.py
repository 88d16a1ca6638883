"""Target actions of continuous control, at which target values are computed."""

from torch import Tensor


def smoothed(
    action_t: Tensor,
    noise: Tensor,
    std: float,
    limit: float,
) -> Tensor:
    """Returns target actions with clipped noise, clip(action_t + clip(std noise, -limit, limit), -1, 1).

    Target policy smoothing of TD3 (arXiv 1802.09477, eq. 14). action_t and noise are [batch, actions]; noise is
    standard normal.
    """
    clipped_noise = (std * noise).clamp(-limit, limit)
    return (action_t + clipped_noise).clamp(-1, 1)
