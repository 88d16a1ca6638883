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
from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean
from rlrun.models.model import LearnedModel
from rlrun.models.mutual_information import MutualInformation
from rlrun.networks.inputs import FlattenInputs
from rlrun.settings import Part, PositiveFloat, PositiveInt, Scheduled, Size, config, register, registry
from rlrun.spaces import unbounded
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("representation", "encoding")
class Encoding(LatentState):
    """Replaces observations by the latent states of a model, and trains the model."""

    @config
    class Config:
        model: Annotated[dict[str, object], Part("model")]
        information: Annotated[dict[str, object], Part("information")] | None
        learning_rate: Scheduled[PositiveFloat]
        epochs: PositiveInt
        minibatch_size: Size | None

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__()
        self.cfg = cfg
        self.model: LearnedModel = registry.build("model", cfg.model, spec.obs, path="algo.representation.model")
        self.optim = Optim(self.model.parameters(), cfg.learning_rate)
        self.information: MutualInformation | None = None
        if cfg.information is not None:
            self.build_information(cfg.information, spec.obs)
        self.shuffle = parts.stream("shuffle")
        self.draws = parts.stream("draws")

    def build_information(self, values: dict[str, object], obs: Space) -> None:
        """Builds the estimate of the mutual information of observations and latent states."""
        self.flatten_obs, self.flatten_latent = FlattenInputs(obs), FlattenInputs(self.latent)
        spaces = unbounded(self.flatten_obs.size), unbounded(self.flatten_latent.size)
        key = "algo.representation.information"
        information: MutualInformation = registry.build("information", values, *spaces, path=key)
        if information.needs_known:
            raise ConfigError(f"{key}: bound=ml and product=distribution need a known distribution of latent states")
        self.information = information
        self.information_optim = Optim(information.parameters(), self.cfg.learning_rate)

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
        metrics = self.fit(rows, noise)
        if self.information is not None:
            noise = self.information.noise(len(rows["weight"]), self.draws)
            metrics = metrics | self.fit_information(rows, noise)
        return metrics

    @kernel
    def fit(self, rows: Batch, noise: Batch) -> Metrics:
        """Takes one gradient step on rows [batch, ...] with the given noise."""
        loss, metrics = self.model.loss(rows, noise)
        self.optim.step(masked_mean(loss, rows["weight"]))
        return metrics

    @kernel
    def fit_information(self, rows: Batch, noise: Batch) -> Metrics:
        """Takes one gradient step of the estimated mutual information of observations and latent states."""
        assert self.information is not None
        obs = self.flatten_obs(rows["obs"])
        latent = self.flatten_latent(self.model.encode(rows["obs"]).detach())
        loss, estimate = self.information.loss(obs, latent, noise)
        self.information_optim.step(masked_mean(loss, rows["weight"]))
        return {"loss/representation_information": estimate}
