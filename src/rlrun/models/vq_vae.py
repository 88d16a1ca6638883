"""Vector-quantised autoencoder (van den Oord et al. 2017, arXiv 1711.00937)."""

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlrun.core.random import Stream
from rlrun.functional.choices import one_hot
from rlrun.functional.losses import masked_mean
from rlrun.models.autoencoder import Reconstructing
from rlrun.settings import Fraction, NonNegativeFloat, PositiveInt, Units, config, register
from rlrun.spaces import unbounded
from rlrun.types import Batch, Metrics, Obs

SMOOTHING = 1e-5  # added to the counts of all codes, as in the code of the authors


@register("model", "vq_vae")
class VectorQuantizer(Reconstructing):
    """Latent states are codes: the vector of a codebook that is nearest to the output e of the encoder.

    The decoder's gradient in the code c moves the encoder (e + sg(c - e)). The codes move towards the outputs, either
    by the loss |sg(e) - c|^2 or as moving averages; `commitment` is the weight of the loss |e - sg(c)|^2. Each loss is
    a mean over the dimensions. The prior of the codes is uniform, so its KL is constant and left out.
    """

    passes_gradients = False
    codebook: Tensor
    counts: Tensor
    sums: Tensor
    unused: Tensor

    @config
    class Config(Reconstructing.Config):
        latent: Units
        codes: Units
        commitment: NonNegativeFloat
        moving_average: Fraction | None
        revive_after: PositiveInt | None

    def __init__(self, cfg: Config, obs: Space):
        super().__init__(cfg, [obs], cfg.latent, unbounded(cfg.latent))
        self.cfg = cfg
        codebook = torch.empty(cfg.codes, cfg.latent).uniform_(-1 / cfg.codes, 1 / cfg.codes)
        if cfg.moving_average is None:
            self.codebook = nn.Parameter(codebook)
        else:
            self.register_buffer("codebook", codebook)
            self.register_buffer("counts", torch.ones(cfg.codes))  # moving average of the rows of each code
            self.register_buffer("sums", codebook.clone())  # moving average of the sum of these rows
        self.register_buffer("unused", torch.zeros(cfg.codes))  # updates since each code was nearest to a row

    def noise(self, batch: Batch, stream: Stream) -> Batch:
        if self.cfg.revive_after is None:
            return {}
        return {"row": stream.uniform(self.cfg.codes)}

    def nearest(self, output: Tensor) -> Tensor:
        """Returns the indices [batch] of the codes that are nearest to outputs [batch, latent] of the encoder."""
        squares = self.codebook.square().sum(-1)
        distances = squares - 2 * output @ self.codebook.T  # without |e|^2, the same for all codes
        return distances.argmin(-1)

    def codes(self, obs: Obs) -> Tensor:
        """Returns the indices of the codes of observations, [batch]."""
        return self.nearest(self.encoder(obs))

    def encode(self, obs: Obs) -> Tensor:
        return self.codebook[self.codes(obs)]

    def loss(self, batch: Batch, noise: Batch) -> tuple[Tensor, Metrics]:
        output = self.encoder(batch["obs"])
        index = self.nearest(output)
        code = self.codebook[index]
        latent = output + (code - output).detach()
        loss, metrics = self.reconstruct(latent, batch)
        commitment = (output - code.detach()).square().mean(-1)
        loss = loss + self.cfg.commitment * commitment
        if self.cfg.moving_average is None:
            loss = loss + (output.detach() - code).square().mean(-1)
        mask = (batch["weight"] > 0).to(output)
        chosen = one_hot(index, self.cfg.codes) * mask.unsqueeze(-1)
        used = chosen.sum(0)
        metrics["loss/representation_commitment"] = masked_mean(commitment.detach(), mask)
        metrics["loss/representation_codes_used"] = (used > 0).float().mean(0)
        metrics["loss/representation_perplexity"] = perplexity(used)
        self.learn(output.detach(), chosen, noise)
        return loss, metrics

    @torch.no_grad()
    def learn(self, output: Tensor, chosen: Tensor, noise: Batch) -> None:
        """Moves the moving averages, and revives codes that were not used for `revive_after` updates.

        output [batch, latent]: of the encoder. chosen [batch, codes]: one-hot, 0 for masked rows.
        """
        used = chosen.sum(0)
        if self.cfg.moving_average is not None:
            kept = self.cfg.moving_average
            self.counts.lerp_(used, 1 - kept)
            self.sums.lerp_(chosen.T @ output, 1 - kept)
            total = self.counts.sum()
            smoothed = (self.counts + SMOOTHING) / (total + self.cfg.codes * SMOOTHING) * total
            self.codebook.copy_(self.sums / smoothed.unsqueeze(-1))
        self.unused.add_(1).mul_((used == 0).float())
        if self.cfg.revive_after is not None:
            self.revive(self.unused >= self.cfg.revive_after, output, chosen, noise["row"])

    def revive(self, dead: Tensor, output: Tensor, chosen: Tensor, row: Tensor) -> None:
        """Sets dead codes [codes] to random rows of the batch that are not masked. row [codes]: uniform."""
        is_masked = chosen.sum(-1) == 0
        order = is_masked.long().argsort(stable=True)  # rows that are not masked come first
        num_rows = len(order) - is_masked.sum()
        picked = order[(row * num_rows).long()]
        where = dead & (num_rows > 0)
        self.codebook.copy_(torch.where(where.unsqueeze(-1), output[picked], self.codebook))
        self.unused.mul_((~where).float())
        if self.cfg.moving_average is not None:
            self.counts.copy_(torch.where(where, 1.0, self.counts))
            self.sums.copy_(torch.where(where.unsqueeze(-1), output[picked], self.sums))


def perplexity(counts: Tensor) -> Tensor:
    """Returns exp(H) of the frequencies with which codes are used, []: the number of codes if all are equally frequent.

    counts [codes]; 1 if all are 0.
    """
    frequency = counts / counts.sum().clamp(min=1.0)
    return torch.special.entr(frequency).sum().exp()
