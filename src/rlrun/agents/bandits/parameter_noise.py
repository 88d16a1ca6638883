"""Parameter noise (Plappert et al. 2018, arXiv 1706.01905): explores with noise on the weights of the network.

The standard deviation of the noise adapts to the KL divergence between the predictions without and with noise.
"""

import torch
from torch import Tensor
from torch.func import functional_call

from rlrun.agents.bandits.neural_greedy import NeuralGreedy, Training
from rlrun.core.parts import Parts
from rlrun.core.random import Stream
from rlrun.functional.losses import batch_mean
from rlrun.settings import PositiveFloat, PositiveFraction, Scheduled, Size, config, register
from rlrun.types import Batch, Context, Metrics, Obs


@register("algo", "parameter_noise_bandit")
class ParameterNoise(NeuralGreedy):
    """A network that predicts rewards and explores with noise on its weights."""

    @config
    class Config(Training):
        noise_std: PositiveFloat
        noise_change: PositiveFloat
        noise_batch_size: Size
        epsilon: Scheduled[PositiveFraction]

    explores_with = ("noise_std",)

    noise_std: Tensor
    epsilon: Tensor

    def build(self, parts: Parts) -> None:
        super().build(parts)
        self.register_buffer("noise_std", torch.tensor(self.cfg.noise_std))
        self.register_buffer("epsilon", torch.as_tensor(self.cfg.epsilon), persistent=False)

    def score(self, obs: Obs, mask: Tensor | None = None) -> Tensor:
        return self.perturbed(obs, self.noise, mask)

    def perturbed(self, obs: Obs, noise: Stream, mask: Tensor | None = None) -> Tensor:
        """Returns predictions with noise on the weights, [batch, arms]; the stored weights do not change."""
        weights = {}
        for name, param in self.q.named_parameters():
            weights[name] = param + self.noise_std * noise.normal(*param.shape)
        return functional_call(self.q, weights, (obs, mask))

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        metrics = super().update(batch, ctx)
        sample = ctx.data.sample(self.cfg.noise_batch_size)
        self.adapt(sample["obs"])
        return metrics | {"loss/noise_std": self.noise_std.clone()}

    @torch.no_grad()
    def adapt(self, obs: Obs) -> None:
        """Adapts noise_std to the predictions for these observations.

        The noise increases if the KL divergence from the softmax policy without noise to the perturbed one is smaller
        than that from a greedy policy to an epsilon-greedy one; otherwise the noise decreases.
        """
        clean = self.q(obs).log_softmax(-1)
        noisy = self.perturbed(obs, self.learn_noise).log_softmax(-1)
        kl = batch_mean((clean.exp() * (clean - noisy)).sum(-1))
        epsilon_greedy_kl = -(1 - self.epsilon + self.epsilon / self.arms).log()
        factor = torch.where(kl < epsilon_greedy_kl, self.cfg.noise_change, 1 / self.cfg.noise_change)
        self.noise_std.mul_(factor)
