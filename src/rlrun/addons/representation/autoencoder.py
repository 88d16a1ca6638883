"""An autoencoder before the agent's networks, trained by its own loss, by the agent's losses, or by both.

With both, this is the autoencoder of SAC-AE (Yarats et al. 2021, arXiv 1910.01741), without its penalties on latent
states and weights. The agent gets observations, and each of its torsos begins with the encoder (`Parts.torso`).
"""

from typing import Literal

import numpy as np
from gymnasium import spaces
from torch import nn
from torch.nn import functional as F

from rlrun.addons.representation import sharing
from rlrun.buffers.minibatches import minibatches
from rlrun.core.addon import Addon
from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, step_together
from rlrun.functional.losses import masked_mean
from rlrun.networks.encoded import HeadEncoder
from rlrun.networks.heads import Head
from rlrun.networks.inputs import FlattenInputs
from rlrun.settings import PositiveFloat, PositiveInt, Size, Units, config, register, registry
from rlrun.types import Batch, Context, Metrics, Spec


@register("representation", "autoencoder")
class Autoencoder(Addon):
    """Encodes observations as latent states from which a decoder reconstructs them."""

    @config
    class Config:
        latent: Units
        trained_by: Literal["own", "agent", "both"]
        hidden: list[Units]
        learning_rate: PositiveFloat
        epochs: PositiveInt
        minibatch_size: Size | None

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__()
        self.cfg = cfg
        self.obs_space = spec.obs
        layers = {"hidden": cfg.hidden, "activation": "relu", "init": "orthogonal", "norm": {"name": "none"}}
        network = {"name": "auto"} | layers
        latent = spaces.Box(-np.inf, np.inf, (cfg.latent,), np.float32)
        torso = registry.build("network", network, [spec.obs], None)
        self.encoder = HeadEncoder(torso, latent, learns_from_agent=cfg.trained_by != "own")
        self.encoder_optim: Optim | None = None  # for trained_by=both: a second one of weights that the agent trains
        if cfg.trained_by == "agent":
            return
        self.flatten = FlattenInputs(spec.obs)
        self.decoder = Head(registry.build("network", network, [latent], None), self.flatten.size)
        self.shuffle = parts.stream("shuffle")
        trained = nn.ModuleList([self.decoder])
        if cfg.trained_by == "own":
            trained.append(self.encoder)
        self.optim = Optim(trained.parameters(), cfg.learning_rate)

    @property
    def encoder_of_agent(self) -> HeadEncoder:
        return self.encoder

    def attach_to(self, agent: Agent) -> None:
        sharing.check(agent, self.obs_space, "algo.representation=autoencoder")
        if self.cfg.trained_by == "own":
            return
        owner = sharing.owner(self.encoder, agent, self.cfg.trained_by)
        if self.cfg.trained_by == "both":
            self.encoder_optim = Optim(self.encoder.parameters(), self.cfg.learning_rate, within=owner)

    def acting(self) -> tuple[nn.Module]:
        return (self.encoder,)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        if self.cfg.trained_by == "agent":
            return {}
        rows = {"obs": batch["obs"], "weight": batch["weight"]}
        is_replay = rows["weight"].dim() == 1
        if is_replay:
            return self.fit(rows)
        metrics: Metrics = {}
        for epoch in minibatches(rows, self.cfg.epochs, self.cfg.minibatch_size, self.shuffle):
            for minibatch in epoch:
                metrics = self.fit(minibatch)
        return metrics

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        """Takes one gradient step on the reconstruction of observations [batch, ...]."""
        decoded = self.decoder(self.encoder(rows["obs"]))
        huber = F.smooth_l1_loss(decoded, self.flatten(rows["obs"]), reduction="none")
        loss = masked_mean(huber.mean(-1), rows["weight"])
        if self.encoder_optim is None:
            self.optim.step(loss)
        else:
            step_together([self.optim, self.encoder_optim], loss)
        return {"loss/representation_obs": loss.detach()}
