"""An autoencoder, and the base class of its variants in this folder."""

from typing import Annotated

from gymnasium import Space
from torch import Tensor

from rlrun.models.decoders import Decoder
from rlrun.models.model import KEY, LearnedModel, encoder_of
from rlrun.settings import Part, Units, config, register, registry
from rlrun.spaces import unbounded
from rlrun.types import Batch, Metrics, Obs


class Reconstructing(LearnedModel):
    """Base class of models whose decoder reconstructs the observation from the latent state.

    inputs: spaces of the encoder's inputs; the first one is that of the observations. outputs: number of outputs of the
    encoder. latent: space of the latent states.
    """

    @config
    class Config:
        network: Annotated[dict[str, object], Part("network")]
        decoder: Annotated[dict[str, object], Part("decoder")]

    def __init__(self, cfg: Config, inputs: list[Space], outputs: int, latent: Space):
        super().__init__()
        self.latent = latent
        self.encoder = encoder_of(cfg.network, inputs, outputs)
        self.decoder: Decoder = registry.build("decoder", cfg.decoder, latent, inputs[0], "obs", path=f"{KEY}.decoder")

    def decode(self, latent: Tensor) -> Tensor:
        return self.decoder.predict(latent)

    def reconstruct(self, latent: Tensor, batch: Batch) -> tuple[Tensor, Metrics]:
        """Returns the decoder's loss of each row [batch], and its metrics."""
        mask = (batch["weight"] > 0).to(batch["weight"])
        return self.decoder.loss(latent, self.decoder.target(batch["obs"]), mask)


@register("model", "autoencoder")
class PlainAutoencoder(Reconstructing):
    """Latent states from which the decoder reconstructs observations, without a prior."""

    @config
    class Config(Reconstructing.Config):
        latent: Units

    def __init__(self, cfg: Config, obs: Space):
        super().__init__(cfg, [obs], cfg.latent, unbounded(cfg.latent))

    def encode(self, obs: Obs) -> Tensor:
        latent: Tensor = self.encoder(obs)
        return latent

    def loss(self, batch: Batch, noise: Batch) -> tuple[Tensor, Metrics]:
        return self.reconstruct(self.encode(batch["obs"]), batch)
