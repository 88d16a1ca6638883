"""VariationalModel autoencoder (Kingma and Welling 2014, arXiv 1312.6114), also with a weight of the KL (beta-VAE)."""

import torch
from gymnasium import Space
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.models.variational import VariationalModel
from rlrun.settings import PositiveFloat, Units, config, register
from rlrun.spaces import unbounded
from rlrun.types import Batch, Metrics, Obs


@register("model", "vae")
class VariationalAutoencoder(VariationalModel):
    """Gaussian latent states. Agents get the mean of the posterior, and the decoder learns from samples."""

    @config
    class Config(VariationalModel.Config):
        latent: Units
        target_kl_per_dim: PositiveFloat | None

    def __init__(self, cfg: Config, obs: Space):
        target = cfg.target_kl_per_dim
        if target is not None:
            target *= cfg.latent
        super().__init__(cfg, obs, 2 * cfg.latent, unbounded(cfg.latent), target)
        self.size = cfg.latent

    def noise(self, batch: Batch, stream: Stream) -> Batch:
        return {"latent": stream.normal(len(batch["weight"]), self.size)}

    def encode(self, obs: Obs) -> Tensor:
        prior, change = self.parameters_of(obs)
        mean, _ = (prior + change).chunk(2, -1)
        return mean

    def loss(self, batch: Batch, noise: Batch) -> tuple[Tensor, Metrics]:
        prior, change = self.parameters_of(batch["obs"])
        mean, log_var = (prior + change).chunk(2, -1)
        latent = mean + torch.exp(0.5 * log_var) * noise["latent"]
        return self.bound(latent, gaussian_kl(prior, change), batch)


def gaussian_kl(prior: Tensor, change: Tensor) -> Tensor:
    """Returns KL(q || p) of diagonal Gaussians, [...]: 1/2 sum(m^2 / var_p + e^d - 1 - d).

    prior [..., 2 size]: means and logarithms of the variances of p. change: m and d, what those of q differ by.
    """
    _, log_var = prior.chunk(2, -1)
    mean_change, log_var_change = change.chunk(2, -1)
    square = mean_change.square() * torch.exp(-log_var)
    return 0.5 * (square + torch.exp(log_var_change) - 1 - log_var_change).sum(-1)
