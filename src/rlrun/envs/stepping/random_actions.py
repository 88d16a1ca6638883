"""Actions that no policy chooses, in the agent's units: random ones, and zeros."""

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.networks.choices import uniform
from rlrun.spaces import MixedSpace
from rlrun.types import Obs, Spec


def sampled(spec: Spec, obs: Obs, random: Stream, device: torch.device) -> Tensor:
    """Returns random actions [num_envs, ...] in the agent's units, drawn from a stream.

    They are uniform over the legal actions, or standard normal if a bound is infinite. obs: the current observations,
    which may hold action masks.
    """
    space, num_envs = spec.action, spec.num_envs
    if isinstance(space, spaces.Box):
        return _sampled_values(space, num_envs, random)
    legal = uniform(space, num_envs, obs, device)
    chosen = legal.sample(legal.noise(random).to(device))
    if not isinstance(space, MixedSpace):
        return chosen
    continuous = _sampled_values(space.continuous, num_envs, random)
    return torch.cat([chosen, continuous.to(device)], -1)


def zeros(spec: Spec, obs: Obs, device: torch.device) -> Tensor:
    """Returns zeros for continuous actions, and the first legal choices, in the agent's units [num_envs, ...].

    obs: the current observations, which may hold action masks.
    """
    space, num_envs = spec.action, spec.num_envs
    if isinstance(space, spaces.Box):
        return torch.zeros(num_envs, *space.shape, device=device)
    chosen = uniform(space, num_envs, obs, device).mode()  # of equal probabilities, the first
    if not isinstance(space, MixedSpace):
        return chosen
    continuous = torch.zeros(num_envs, *space.continuous.shape, device=device)
    return torch.cat([chosen, continuous], -1)


def _sampled_values(space: spaces.Box, num_envs: int, random: Stream) -> Tensor:
    if not space.is_bounded():
        return random.normal(num_envs, *space.shape)
    low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
    return low + (high - low) * random.uniform(num_envs, *space.shape)
