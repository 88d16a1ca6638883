"""Base class of variational autoencoders: a prior, a posterior that is relative to it, and the weight of their KL."""

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean
from rlrun.models.autoencoder import KEY, Reconstructing
from rlrun.nested import get
from rlrun.networks.heads import Head
from rlrun.settings import NonNegativeFloat, config, registry
from rlrun.spaces import unbounded
from rlrun.types import Batch, Metrics, Obs


class VariationalModel(Reconstructing):
    """A model whose loss is the reconstruction plus beta times KL(posterior || prior).

    The encoder returns the difference of the posterior's parameters from those of the prior, which are 0 without a
    prior network: a standard normal or a uniform distribution. A prior network sees some entries of the observation,
    and the encoder the prior's parameters beside the observation.

    With the decoder's loss as the negative log-likelihood of a row (`weight` times the mean over its dimensions), the
    loss for beta=1 is minus the evidence lower bound, and for a larger beta minus a lower one; below 1, it is no bound.
    """

    @config
    class Config(Reconstructing.Config):
        beta: NonNegativeFloat
        prior: list[str] | None

    def __init__(self, cfg: Config, obs: Space, outputs: int, latent: Space, target_kl: float | None):
        inputs = [obs]
        if cfg.prior is not None:
            inputs.append(unbounded(outputs))
        super().__init__(cfg, inputs, outputs, latent)
        self.beta = KLWeight(cfg.beta, target_kl)
        self.conditions = cfg.prior or []
        self.prior: Head | None = None
        if cfg.prior is not None:
            seen = spaces.Dict({name: entry(obs, name) for name in cfg.prior})
            self.prior = Head(registry.build("network", cfg.network, [seen], None, path=f"{KEY}.network"), outputs)

    @property
    def encoding_network(self) -> nn.Module:
        if self.prior is None:
            return self.encoder
        return nn.ModuleList([self.prior, self.encoder])

    def parameters_of(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Returns the parameters of the prior, and what the posterior's differ by, each [batch, outputs]."""
        if self.prior is None:
            change: Tensor = self.encoder(obs)
            return torch.zeros_like(change), change
        prior = self.prior({name: get(obs, (name,)) for name in self.conditions})
        return prior, self.encoder(obs, prior)

    def bound(self, latent: Tensor, kl: Tensor, batch: Batch) -> tuple[Tensor, Metrics]:
        """Returns the loss of each row, and metrics. latent: a sample of the posterior. kl [batch]."""
        loss, metrics = self.reconstruct(latent, batch)
        mask = (batch["weight"] > 0).to(kl)
        metrics["loss/representation_kl"] = masked_mean(kl.detach(), mask)
        if self.beta.target is not None:
            metrics["loss/representation_beta"] = self.beta.value()
        return loss + self.beta.penalty(kl), metrics


class KLWeight(nn.Module):
    """beta, which is constant, or moves so that the mean KL meets a target.

    The loss of its logarithm is log beta (target - KL): beta grows while the KL is above the target.
    """

    log_beta: Tensor

    def __init__(self, beta: float, target: float | None):
        super().__init__()
        self.beta, self.target = beta, target
        if target is not None:
            if not beta:
                raise ConfigError(f"{KEY}.beta=0.0: must be above 0, because a target of the KL changes its logarithm")
            self.log_beta = nn.Parameter(torch.tensor(beta).log())

    def value(self) -> Tensor:
        """Returns the present beta, which has a target, detached, []."""
        return self.log_beta.detach().exp()

    def penalty(self, kl: Tensor) -> Tensor:
        """Returns beta times the KL of each row [batch], and with a target the loss of beta."""
        if self.target is None:
            return self.beta * kl
        excess = kl.detach() - self.target
        return self.value() * kl - self.log_beta * excess


def entry(obs: Space, name: str) -> Space:
    """Returns the space of an entry of Dict observations. Raises ConfigError if there is none."""
    if isinstance(obs, spaces.Dict) and name in obs.spaces:
        return obs[name]
    known = "observations have none"
    if isinstance(obs, spaces.Dict):
        known = f"observations have {', '.join(obs.spaces)}"
    raise ConfigError(f"{KEY}.prior={name}: must be an entry of the observation, but {known}")
