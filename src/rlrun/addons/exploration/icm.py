"""Intrinsic curiosity module (Pathak et al. 2017, arXiv 1705.05363): what a forward model in features gets wrong.

The features are those from which an inverse model tells the action, so what no action changes need not be in them. The
forward model trains itself alone, not the features, as in the implementations; forward_coef is the paper's beta.
"""

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlrun import registry
from rlrun.addons.exploration.intrinsic import Intrinsic
from rlrun.config.schema import Fraction, config
from rlrun.core.agent import kernel
from rlrun.core.state import Optim
from rlrun.functional.losses import average
from rlrun.networks.heads import Head, stochastic_policy
from rlrun.registry import register
from rlrun.types import Batch, Metrics


@register("intrinsic", "icm")
class ICM(Intrinsic):
    single_steps = True

    @config
    class Config(Intrinsic.Config):
        forward_coef: Fraction

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.encoder = registry.build("network", self.network, [spec.obs], None)
        features = self.encoder.features
        model = self.network | {"name": "mlp"}
        one, two = (Box(-np.inf, np.inf, (count * features,), np.float32) for count in (1, 2))
        self.forward_model = Head(registry.build("network", model, [one, spec.action], None), features)
        self.inverse_model = stochastic_policy(registry.build("network", model, [two], None), spec.action)
        models = (self.encoder, self.forward_model, self.inverse_model)
        self.optim = Optim([param for part in models for param in part.parameters()], cfg.learning_rate)

    def surprise(self, rows: Batch) -> Tensor:
        return self.forward_error(self.encoder(rows["obs"]), self.encoder(rows["next_obs"]), rows["action"])

    def forward_error(self, features: Tensor, next_features: Tensor, action: Tensor) -> Tensor:
        return 0.5 * (self.forward_model(features, action) - next_features).square().mean(-1)

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        action, weight = rows["action"], rows["weight"]
        features, next_features = self.encoder(rows["obs"]), self.encoder(rows["next_obs"])
        told = self.inverse_model(torch.cat([features, next_features], -1))
        inverse = average(-told.log_prob(action), weight)
        forward = average(self.forward_error(features.detach(), next_features.detach(), action), weight)
        self.optim.step(self.cfg.forward_coef * forward + (1 - self.cfg.forward_coef) * inverse)
        return {"icm_forward": forward.detach(), "icm_inverse": inverse.detach()}
