"""Latent states of a model, trained by a loss of its own, by the losses of the agent, or by both.

With its own loss, the model learns from the observations that the agent learns from, and latent states replace them.
Otherwise the agent gets observations, and each of its torsos begins with the encoder of the model (`Parts.torso`),
which belongs to one optimiser of the agent. With both, the model's loss moves it too, by a second optimiser of these
weights; an autoencoder is then that of SAC-AE (Yarats et al. 2021, arXiv 1910.01741), without its penalties.
"""

from typing import Annotated, Literal

from gymnasium import Space
from torch import Tensor, nn

from rlrun.addons.representation import sharing
from rlrun.addons.representation.latent_state import LatentState
from rlrun.buffers.minibatches import minibatches
from rlrun.core.accumulator import mean_metrics
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, step_together
from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean
from rlrun.models.model import LearnedModel
from rlrun.models.mutual_information import MutualInformation
from rlrun.networks.encoded import Encoder
from rlrun.networks.inputs import FlattenInputs
from rlrun.settings import Part, PositiveFloat, PositiveInt, Scheduled, Size, config, register, registry
from rlrun.spaces import unbounded
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("representation", "encoding")
class Encoding(LatentState):
    """Holds a model whose latent states the agent learns from, and trains it by the model's loss."""

    @config
    class Config:
        model: Annotated[dict[str, object], Part("model")]
        trained_by: Literal["own", "agent", "both"]
        previous: list[Literal["action", "reward"]]
        information: Annotated[dict[str, object], Part("information")] | None
        learning_rate: Scheduled[PositiveFloat]
        epochs: PositiveInt
        minibatch_size: Size | None

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__()
        self.cfg = cfg
        self.obs_space = spec.obs
        self.model: LearnedModel = registry.build("model", cfg.model, spec.obs, path="algo.representation.model")
        self.check_training()
        self.before_torsos: tuple[Encoder, ...] = ()  # in a tuple, so that its weights get no further name
        learned = [*self.model.parameters()]
        if cfg.trained_by != "own":
            encoder = Encoder(self.model.encoding_network, self.model.encode, self.model.latent)
            self.before_torsos = (encoder,)
            of_agent = set(encoder.parameters())
            learned = [param for param in learned if param not in of_agent]
        self.optim: Optim | None = None
        self.encoder_optim: Optim | None = None  # for trained_by=both: a second one of weights that the agent trains
        if cfg.trained_by == "agent":
            for param in learned:
                param.requires_grad_(False)
        else:
            self.optim = Optim(learned, cfg.learning_rate)
        self.information: MutualInformation | None = None
        if cfg.information is not None:
            self.build_information(cfg.information, spec.obs)
        if self.learns:
            self.shuffle = parts.stream("shuffle")
            self.draws = parts.stream("draws")

    @property
    def learns(self) -> bool:
        """Whether anything has an optimiser of this add-on."""
        return self.optim is not None or self.information is not None

    def check_training(self) -> None:
        """Raises ConfigError if the model does not learn from the chosen losses."""
        name, trained_by = self.model.registered, self.cfg.trained_by
        if trained_by != "agent" and not self.model.has_loss:
            raise ConfigError(
                f"algo.representation.trained_by={trained_by}: algo.representation.model={name} has no loss of its "
                "own; set algo.representation.trained_by=agent"
            )
        if trained_by != "own" and not self.model.passes_gradients:
            raise ConfigError(
                f"algo.representation.trained_by={trained_by}: no gradient passes through the latent states of "
                f"algo.representation.model={name}; set algo.representation.trained_by=own"
            )

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

    @property
    def encoder_of_agent(self) -> Encoder | None:
        return next(iter(self.before_torsos), None)

    def attach_to(self, agent: Agent) -> None:
        trained_by = self.cfg.trained_by
        for encoder in self.before_torsos:
            sharing.check(agent, self.obs_space, f"algo.representation.trained_by={trained_by}")
            owner = sharing.owner(encoder, agent, trained_by)
            if trained_by == "both":
                self.encoder_optim = Optim(encoder.parameters(), self.cfg.learning_rate, within=owner)

    def acting(self) -> tuple[nn.Module]:
        return (self.encoder_of_agent or self.model,)

    @policy
    def encode(self, obs: Obs) -> Tensor:
        return self.model.encode(obs)

    def spec_after(self, spec: Spec) -> Spec:
        if self.before_torsos:
            return spec
        return super().spec_after(spec)

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        if self.before_torsos:
            return obs, {}
        return super().see(obs, carry, explore)

    def relabel(self, batch: Batch) -> Batch:
        if self.before_torsos:
            return batch
        return self.with_rows(batch, {"obs": batch["obs"], "weight": batch["weight"]})

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        if not self.learns:
            return {}
        rows = {"obs": batch["obs"], "weight": batch["weight"]}
        if not self.before_torsos:
            rows = self.rows_of(batch)
        is_replay = rows["weight"].dim() == 1
        if is_replay:
            return self.step(rows)
        epochs = minibatches(rows, self.cfg.epochs, self.cfg.minibatch_size, self.shuffle)
        return mean_metrics(self.step(minibatch) for epoch in epochs for minibatch in epoch)

    def step(self, rows: Batch) -> Metrics:
        """Takes one gradient step on rows [batch, ...]."""
        metrics: Metrics = {}
        if self.optim is not None:
            noise = self.model.noise(rows, self.draws)
            metrics = self.fit(rows, noise)
        if self.information is not None:
            noise = self.information.noise(len(rows["weight"]), self.draws)
            metrics = metrics | self.fit_information(rows, noise)
        return metrics

    @kernel
    def fit(self, rows: Batch, noise: Batch) -> Metrics:
        """Takes one gradient step on rows [batch, ...] with the given noise."""
        losses, metrics = self.model.loss(rows, noise)
        loss = masked_mean(losses, rows["weight"])
        assert self.optim is not None
        if self.encoder_optim is None:
            self.optim.step(loss)
        else:
            step_together([self.optim, self.encoder_optim], loss)
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
