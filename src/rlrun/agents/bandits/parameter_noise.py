"""Parameter-noise sampling (Plappert et al. 2018, arXiv 1706.01905): acts with perturbed weights. The deviation follows
how far the perturbed predictions are from the clean ones."""

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from rlrun.agents.bandits.neural_greedy import NeuralGreedy, Training
from rlrun.config.schema import Fraction, PositiveFloat, PositiveFraction, config
from rlrun.core.random import Stream
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "parameter_noise_bandit")
class ParameterNoise(NeuralGreedy):
    @config
    class Config(Training):
        dropout: Fraction
        noise_std: PositiveFloat
        noise_change: PositiveFloat
        epsilon: PositiveFraction
        epsilon_decay: PositiveFraction

    noise_std: Tensor
    epsilon: Tensor

    def build(self, parts: Any) -> None:
        super().build(parts)
        self.register_buffer("noise_std", torch.tensor(self.cfg.noise_std))
        self.register_buffer("epsilon", torch.tensor(self.cfg.epsilon))

    def score(self, obs: Any) -> Tensor:
        return self.perturbed(obs, self.noise)

    def perturbed(self, obs: Any, noise: Stream) -> Tensor:
        """Predictions of a network near this one, [batch, arms]; its own weights stay as they are."""
        weights = {
            name: param + self.noise_std * noise.normal(*param.shape) for name, param in self.q.named_parameters()
        }
        return functional_call(self.q, weights, (obs,))

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        metrics = super().update(batch, ctx)
        self.adapt(batch["obs"])
        return metrics | {"noise_std": self.noise_std.clone()}

    @torch.no_grad()
    def adapt(self, obs: Any) -> None:
        """More noise while the policy it makes is nearer to the clean one than an epsilon-greedy policy would be."""
        clean, noisy = self.q(obs).log_softmax(-1), self.perturbed(obs, self.learn_noise).log_softmax(-1)
        distance = (clean.exp() * (clean - noisy)).sum(-1).mean()
        near = distance < -(1 - self.epsilon + self.epsilon / self.arms).log()
        self.noise_std.mul_(torch.where(near, self.cfg.noise_change, 1 / self.cfg.noise_change))
        self.epsilon.mul_(self.cfg.epsilon_decay)
