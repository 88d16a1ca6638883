"""Random Fourier features of observations, with which linear networks learn curved functions.

Rahimi and Recht 2007, "Random features for large-scale kernel machines".

pytest my_representation/
rlrun train algo=ppo env=CartPole network=linear algo.representation=./my_representation/my_representation.py
"""

import math
from dataclasses import replace

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.core.addon import Addon
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.networks.inputs import FlattenInputs
from rlrun.settings import PositiveFloat, Units, config, register
from rlrun.types import MASK, Batch, Obs, Spec


@register("representation", "my_representation")
class MyRepresentation(Addon):
    """The agent gets cos(W x + b) sqrt(2 / features) for the observation x; W and b are random and constant.

    The replay buffer stores the observations themselves.
    """

    @config
    class Config:
        features: Units = 256  # size of the representation
        scale: PositiveFloat = 1.0  # standard deviation of W; the functions that are learned easily are the more curved

    weight: Tensor
    phase: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__()
        if MASK in getattr(spec.obs, "spaces", ()):
            raise ConfigError("algo.representation=my_representation: does not keep action masks")
        self.space = Box(-np.inf, np.inf, (cfg.features,), np.float32)
        self.factor = math.sqrt(2 / cfg.features)
        self.flat = FlattenInputs(spec.obs)
        self.register_buffer("weight", cfg.scale * torch.randn(self.flat.size, cfg.features))
        self.register_buffer("phase", 2 * math.pi * torch.rand(cfg.features))

    def spec_after(self, spec: Spec) -> Spec:
        """Returns the spec with the observations that the agent gets."""
        return replace(spec, obs=self.space)

    def features(self, obs: Obs) -> Tensor:
        """Returns the representation of observations [..., space]."""
        return self.factor * torch.cos(self.flat(obs) @ self.weight + self.phase)

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        """Returns the observations on which the agent acts, and extras to store with the step."""
        return self.features(obs), {}

    def relabel(self, batch: Batch) -> Batch:
        """Returns the batch that the agent learns from."""
        return batch | {"obs": self.features(batch["obs"]), "next_obs": self.features(batch["next_obs"])}

    def acting(self) -> tuple[nn.Module]:
        """Returns the modules that `see` reads."""
        return (self,)
