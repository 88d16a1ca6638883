"""The part `algo.reward_model`: the reward of a step by its observation, action and next observation, for planning.

The reward may depend on the state before the action, as Pendulum's does, or on the one after it, as PointMass's does:
so every reward model receives both.
"""

from typing import Annotated, ClassVar

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.models.dynamics import known
from rlrun.networks.heads import Head
from rlrun.networks.inputs import FlattenInputs
from rlrun.networks.recurrent import is_recurrent
from rlrun.settings import Part, PositiveFloat, Scheduled, config, register, registry
from rlrun.types import Spec


class RewardModel(nn.Module):
    """Base class of reward models. Its holder has the optimiser."""

    registered: ClassVar[str] = "?"
    learns: ClassVar[bool] = True  # whether it has a loss
    learning_rate: float | Tensor

    def forward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Returns rewards [...] for obs and next_obs [..., D] and action [..., A]."""
        raise NotImplementedError

    def loss(self, obs: Tensor, action: Tensor, next_obs: Tensor, reward: Tensor) -> Tensor:
        """Returns the loss of each row [B]."""
        raise NotImplementedError


@register("reward_model", "learned")
class LearnedReward(RewardModel):
    """A network that learns the reward by half the squared error."""

    @config
    class Config:
        learning_rate: Scheduled[PositiveFloat]
        network: Annotated[dict[str, object], Part("network")]

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__()
        self.learning_rate = cfg.learning_rate
        name = str(cfg.network["name"])
        if is_recurrent(name):
            raise ConfigError(f"algo.reward_model.network={name}: is not supported, because a reward has no memory")
        self.flat_action = FlattenInputs(spec.action)
        (size,) = spec.obs.shape
        inputs = Box(-np.inf, np.inf, (2 * size + self.flat_action.size,), np.float32)
        self.network = Head(registry.build("network", cfg.network, [inputs], None, path="algo.reward_model.network"), 1)

    def forward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        rows = torch.cat([obs, self.flat_action(action), next_obs], -1)
        reward: Tensor = self.network(rows.flatten(0, -2))
        return reward.view(rows.shape[:-1])

    def loss(self, obs: Tensor, action: Tensor, next_obs: Tensor, reward: Tensor) -> Tensor:
        return 0.5 * (self(obs, action, next_obs) - reward) ** 2


@register("reward_model", "given")
class GivenReward(RewardModel):
    """The reward function of the environment itself."""

    learns = False

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__()
        equations = known(spec)
        if equations is None:
            raise ConfigError(
                f"algo.reward_model={self.registered}: this environment has no reward function of its own; choose "
                "algo.reward_model=learned"
            )
        self.equations = equations

    def forward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        return self.equations.reward(obs, action, next_obs)
