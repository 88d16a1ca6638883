"""An encoder without a loss, which the losses of the agent train."""

from typing import Annotated

from gymnasium import Space
from torch import Tensor

from rlrun.models.model import LearnedModel, encoder_of
from rlrun.settings import Part, Units, config, register
from rlrun.spaces import unbounded
from rlrun.types import Obs


@register("model", "network")
class PlainEncoder(LearnedModel):
    """A network from observations to latent states, which actor and critic share."""

    has_loss = False

    @config
    class Config:
        network: Annotated[dict[str, object], Part("network")]
        latent: Units

    def __init__(self, cfg: Config, obs: Space):
        super().__init__()
        self.latent = unbounded(cfg.latent)
        self.encoder = encoder_of(cfg.network, [obs], cfg.latent)

    def encode(self, obs: Obs) -> Tensor:
        latent: Tensor = self.encoder(obs)
        return latent
