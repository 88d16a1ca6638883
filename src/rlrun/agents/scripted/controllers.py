"""The part `algo.controller`: a policy that is written by hand, as a function of the observation."""

from typing import ClassVar

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.settings import PositiveFloat, config, register
from rlrun.types import Obs, Spec

GAIN = 2.0  # of PointCarController: steering per radian from the goal, and acceleration per m/s from the wanted speed


class Controller(nn.Module):
    """Base class of controllers. Observations are those of the environment, as `env.normalize` and `env.wrappers` make
    them; bounded continuous actions are in [-1, 1]."""

    registered: ClassVar[str] = "?"

    def __init__(self, cfg: object, spec: Spec):
        super().__init__()
        self.cfg, self.spec = cfg, spec

    def control(self, obs: Obs) -> Tensor:
        """Returns actions [num_envs, ...] for observations [num_envs, ...]. Draws no random numbers."""
        raise NotImplementedError

    def needs(self, env: str, is_suited: bool) -> None:
        """Raises ConfigError, which names the environment that the controller is for, unless this one is suited."""
        if not is_suited:
            given = f"{self.spec.shown_action} and {self.spec.obs}".replace("\n", " ")
            raise ConfigError(
                f"algo.controller={self.registered}: needs env={env}; "
                f"this environment has {given}, which is not supported"
            )


@register("controller", "balance")
class CartPoleController(Controller):
    """Pushes the cart of CartPole to where the pole falls, and slowly back to the middle."""

    @config
    class Config:
        gains: list[float]

    gains: Tensor

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__(cfg, spec)
        self.needs("CartPole", spec.obs.shape == (4,) and isinstance(spec.action, Discrete) and spec.action.n == 2)
        if len(cfg.gains) != 4:
            raise ConfigError(f"algo.controller.gains={cfg.gains}: needs 4 numbers")
        self.register_buffer("gains", torch.tensor(cfg.gains), persistent=False)

    def control(self, obs: Obs) -> Tensor:
        assert isinstance(obs, Tensor)
        return (obs @ self.gains > 0).long()


@register("controller", "drive")
class PointCarController(Controller):
    """Steers the car of PointCar to its goal, slows down near it and stops there."""

    @config
    class Config:
        speed: PositiveFloat
        distance_to_decelerate: PositiveFloat
        distance_to_stop: PositiveFloat

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__(cfg, spec)
        is_suited = spec.obs.shape == (3,) and isinstance(spec.action, Box) and spec.action.shape == (2,)
        self.needs("PointCar", is_suited)

    def control(self, obs: Obs) -> Tensor:
        assert isinstance(obs, Tensor)
        ahead, left, speed = obs.unbind(-1)
        distance = torch.hypot(ahead, left)
        wanted = self.cfg.speed * (distance / self.cfg.distance_to_decelerate).clamp(max=1.0)
        wanted = torch.where(distance < self.cfg.distance_to_stop, 0.0, wanted)
        steering = GAIN * torch.atan2(left, ahead)
        acceleration = GAIN * (wanted - speed)
        return torch.stack([steering, acceleration], -1).clamp(-1.0, 1.0)
