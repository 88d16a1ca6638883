"""Intrinsic curiosity module (Pathak et al. 2017, arXiv 1705.05363): the error of a forward model in feature space.

The features are trained by an inverse model, which predicts the action from the features of two consecutive states.
They therefore need not represent anything that the actions do not affect. As in published implementations, the loss of
the forward model does not train the features. `forward_coef` is the paper's beta.
"""

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.agent import kernel
from rlrun.core.state import Optim
from rlrun.functional.losses import masked_mean
from rlrun.networks.heads import Head, stochastic_policy
from rlrun.settings import Fraction, config, register, registry
from rlrun.types import Batch, Metrics


@register("intrinsic", "icm")
class ICM(Intrinsic):
    """Rewards the prediction error of a forward model in feature space."""

    single_steps = True

    @config
    class Config(Intrinsic.Config):
        forward_coef: Fraction

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.encoder = self.network_of(self.space)
        features: int = self.encoder.features  # type: ignore[assignment]
        mlp = self.layers | {"name": "mlp"}
        one_state = Box(-np.inf, np.inf, (features,), np.float32)
        two_states = Box(-np.inf, np.inf, (2 * features,), np.float32)
        forward_torso = registry.build("network", mlp, [one_state, spec.action], None)
        self.forward_model = Head(forward_torso, features)
        inverse_torso = registry.build("network", mlp, [two_states], None)
        self.inverse_model = stochastic_policy(inverse_torso, spec.action)
        params = [
            *self.encoder.parameters(),
            *self.forward_model.parameters(),
            *self.inverse_model.parameters(),
        ]
        self.optim = Optim(params, cfg.learning_rate)

    def raw_reward(self, rows: Batch) -> Tensor:
        features = self.encoder(rows["obs"])
        next_features = self.encoder(rows["next_obs"])
        return self.prediction_error(features, next_features, rows["action"])

    def prediction_error(self, features: Tensor, next_features: Tensor, action: Tensor) -> Tensor:
        """Returns half the mean squared error of the forward model, [batch]."""
        predicted = self.forward_model(features, action)
        error = predicted - next_features
        return 0.5 * error.square().mean(-1)

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        action = rows["action"]
        weight = rows["weight"]
        features = self.encoder(rows["obs"])
        next_features = self.encoder(rows["next_obs"])
        predicted_action = self.inverse_model(torch.cat([features, next_features], -1))
        inverse_loss = masked_mean(-predicted_action.log_prob(action), weight)
        error = self.prediction_error(features.detach(), next_features.detach(), action)
        forward_loss = masked_mean(error, weight)
        beta = self.cfg.forward_coef
        self.optim.step(beta * forward_loss + (1 - beta) * inverse_loss)
        return {"loss/icm_forward": forward_loss.detach(), "loss/icm_inverse": inverse_loss.detach()}
