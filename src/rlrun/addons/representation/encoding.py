"""Latent states of a model, which learns from the observations that the agent learns from, by a loss of its own."""

from typing import Annotated

from gymnasium import Space
from torch import Tensor, nn

from rlrun.addons.representation.latent_state import LatentState
from rlrun.buffers.minibatches import minibatches
from rlrun.core.accumulator import mean_metrics
from rlrun.core.agent import kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.losses import masked_mean
from rlrun.models.model import LearnedModel
from rlrun.settings import Part, PositiveFloat, PositiveInt, Scheduled, Size, config, register, registry
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("representation", "encoding")
class Encoding(LatentState):
    """Replaces observations by the latent states of a model, and trains the model."""

    @config
    class Config:
        model: Annotated[dict[str, object], Part("model")]
        learning_rate: Scheduled[PositiveFloat]
        epochs: PositiveInt
        minibatch_size: Size | None

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__()
        self.cfg = cfg
        self.model: LearnedModel = registry.build("model", cfg.model, spec.obs, path="algo.representation.model")
        self.optim = Optim(self.model.parameters(), cfg.learning_rate)
        self.shuffle = parts.stream("shuffle")
        self.draws = parts.stream("draws")

    @property
    def latent(self) -> Space:
        return self.model.latent

    def acting(self) -> tuple[nn.Module]:
        return (self.model,)

    @policy
    def encode(self, obs: Obs) -> Tensor:
        return self.model.encode(obs)

    def relabel(self, batch: Batch) -> Batch:
        return self.with_rows(batch, {"obs": batch["obs"], "weight": batch["weight"]})

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        rows = self.rows_of(batch)
        is_replay = rows["weight"].dim() == 1
        if is_replay:
            return self.step(rows)
        epochs = minibatches(rows, self.cfg.epochs, self.cfg.minibatch_size, self.shuffle)
        return mean_metrics(self.step(minibatch) for epoch in epochs for minibatch in epoch)

    def step(self, rows: Batch) -> Metrics:
        """Takes one gradient step on rows [batch, ...]."""
        noise = self.model.noise(rows, self.draws)
        return self.fit(rows, noise)

    @kernel
    def fit(self, rows: Batch, noise: Batch) -> Metrics:
        """Takes one gradient step on rows [batch, ...] with the given noise."""
        loss, metrics = self.model.loss(rows, noise)
        self.optim.step(masked_mean(loss, rows["weight"]))
        return metrics
