"""VariationalModel autoencoder whose latent state is a vector of categorical variables."""

from typing import Literal

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.functional.choices import one_hot
from rlrun.functional.distributions import Categorical, straight_through, straight_through_gumbel
from rlrun.functional.divergences import kl
from rlrun.models.variational import VariationalModel
from rlrun.settings import PositiveFloat, Scheduled, Units, config, register
from rlrun.types import Batch, Metrics, Obs


@register("model", "discrete_vae")
class DiscreteVariationalAutoencoder(VariationalModel):
    """Latent states [variables, categories], one-hot. Agents get the most probable category of each variable.

    The decoder learns from samples. Their gradient is that of the probabilities (`gradient=straight_through`, Bengio et
    al. 2013, arXiv 1308.3432), or that of a Gumbel-softmax sample (`gradient=gumbel`, Jang et al. 2017, arXiv
    1611.01144).
    """

    passes_gradients = False
    temperature: Tensor

    @config
    class Config(VariationalModel.Config):
        variables: Units
        categories: Units
        gradient: Literal["straight_through", "gumbel"]
        temperature: Scheduled[PositiveFloat]
        target_kl_per_variable: PositiveFloat | None

    def __init__(self, cfg: Config, obs: Space):
        target = cfg.target_kl_per_variable
        if target is not None:
            target *= cfg.variables
        self.shape = (cfg.variables, cfg.categories)
        latent = Box(0.0, 1.0, self.shape, np.float32)
        super().__init__(cfg, obs, cfg.variables * cfg.categories, latent, target)
        self.gradient = cfg.gradient
        # a scheduled temperature is a tensor that the loop changes in place; as_tensor does not copy it
        self.register_buffer("temperature", torch.as_tensor(cfg.temperature), persistent=False)

    def noise(self, batch: Batch, stream: Stream) -> Batch:
        return {"gumbel": stream.gumbel(len(batch["weight"]), *self.shape)}

    def logits(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Returns the logits of prior and posterior, each [batch, variables, categories]."""
        prior, change = self.parameters_of(obs)
        return prior.unflatten(-1, self.shape), (prior + change).unflatten(-1, self.shape)

    def encode(self, obs: Obs) -> Tensor:
        _, logits = self.logits(obs)
        return one_hot(logits.argmax(-1), self.shape[-1])

    def loss(self, batch: Batch, noise: Batch) -> tuple[Tensor, Metrics]:
        prior, logits = self.logits(batch["obs"])
        if self.gradient == "gumbel":
            latent = straight_through_gumbel(logits, noise["gumbel"], self.temperature)
        else:
            latent = straight_through(logits, noise["gumbel"])
        divergence = kl(Categorical(logits), Categorical(prior)).sum(-1)
        return self.bound(latent, divergence, batch)
