"""Latent state that replaces the observation, trained to predict the next K steps (ALF's predictive representation).

From every step, the latent state is unrolled along the next K actions. From the K + 1 latent states, decoders predict
the K + 1 observations, and results of the K actions such as the reward. Steps after the end of an episode are masked.
K = 0 is an autoencoder. The encoder is trained only by these losses: agents get latent states without gradients.
"""

from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.addons.representation.latent_state import LatentState
from rlrun.buffers.consecutive import next_steps
from rlrun.buffers.minibatches import minibatches
from rlrun.core.agent import kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean
from rlrun.models.decoders import Decoder, Dense
from rlrun.nested import index
from rlrun.networks.heads import Head
from rlrun.settings import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Size,
    Units,
    config,
    register,
    registry,
)
from rlrun.types import Batch, Context, Metrics, Obs, Spec

STEP_RESULTS = ("reward", "terminated")  # fields that a step returns together with the next observation
TRAINING_KEYS = ("obs", "next_obs", "action", *STEP_RESULTS, "truncated", "weight", "mask")


@register("representation", "predictive")
class Predictive(LatentState):
    """Encodes observations to latent states that predict the next K steps."""

    @config
    class Config:
        latent: Units
        unroll_steps: NonNegativeInt
        decode: dict[str, NonNegativeFloat]
        hidden: list[Units]
        learning_rate: PositiveFloat
        epochs: PositiveInt
        minibatch_size: Size | None

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__()
        decoded = decoded_fields(cfg)
        self.cfg = cfg
        self.num_next_steps = max(1, cfg.unroll_steps)
        layers = {"hidden": cfg.hidden, "activation": "relu", "init": "orthogonal", "norm": {"name": "none"}}
        self.network = {"name": "auto"} | layers
        latent = self.latent_space = spaces.Box(-np.inf, np.inf, (cfg.latent,), np.float32)
        self.encoder = self.head([spec.obs], cfg.latent)
        self.dynamics = None
        if cfg.unroll_steps:
            self.dynamics = self.head([latent, spec.action], cfg.latent)
        targets = {
            "obs": spec.obs,
            "reward": spaces.Box(-np.inf, np.inf, (spec.reward_dim,), np.float32),
            "terminated": spaces.MultiBinary(1),
        }
        decoders = {name: Dense(self.decoding(name), latent, targets[name], name) for name in decoded}
        self.decoders = nn.ModuleDict(decoders)
        self.optim = Optim(self.parameters(), cfg.learning_rate)
        self.shuffle = parts.stream("shuffle")

    def head(self, inputs: list[Space], outputs: int) -> Head:
        """Returns a new network with inputs of these spaces."""
        torso = registry.build("network", self.network, inputs, None)
        return Head(torso, outputs)

    def decoding(self, field: str) -> Dense.Config:
        """Returns the settings of the decoder of a field."""
        return Dense.Config(
            loss="smooth_l1", weight=self.cfg.decode[field], normalize_target=False, by_dimension=False,
            hidden=self.cfg.hidden, activation="relu",
        )  # fmt: skip

    @property
    def latent(self) -> Space:
        return self.latent_space

    def acting(self) -> tuple[nn.Module]:
        return (self.encoder,)

    @policy
    def encode(self, obs: Obs) -> Tensor:
        """Returns latent states, [batch, latent]."""
        return self.encoder(obs)

    def relabel(self, batch: Batch) -> Batch:
        rows: Any = batch.get("next_steps", batch)  # on-policy batches have no next_steps: take the whole rollout
        relabelled = self.with_rows(batch, {name: rows[name] for name in TRAINING_KEYS if name in rows})
        relabelled.pop("next_steps", None)
        return relabelled

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        rows = self.rows_of(batch)
        is_replay = "mask" in rows
        if is_replay:
            return self.fit(rows)
        weight = rows["weight"]
        flat_index = torch.arange(weight.numel(), device=weight.device)
        steps = {"index": flat_index.view_as(weight), "weight": weight}
        metrics: Metrics = {}
        for epoch in minibatches(steps, self.cfg.epochs, self.cfg.minibatch_size, self.shuffle):
            for minibatch in epoch:
                sequences = next_steps(rows, minibatch["index"], self.num_next_steps)
                metrics = self.fit(sequences)
        return metrics

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        """Takes one gradient step on sequences [steps, batch, ...], whose `mask` is 1 inside the episode of the first
        step."""
        actions = rows["action"]
        if self.dynamics is None:
            actions = actions[:0]
        first_obs = index(rows["obs"], 0)
        latents = self.unroll(self.encoder(first_obs), actions)
        loss = latents.new_zeros(())
        metrics: Metrics = {}
        for name, decoder in self.decoders.items():
            assert isinstance(decoder, Decoder)
            target, mask = self.target(rows, name, decoder)
            decoded = latents[-len(mask) :]  # all K + 1 latent states, or the last K
            losses, of_decoder = decoder.loss(decoded, target, mask)
            loss = loss + masked_mean(losses, mask)
            metrics |= of_decoder
        self.optim.step(loss)
        return metrics

    def unroll(self, latent: Tensor, actions: Tensor) -> Tensor:
        """Returns the given latent state, then the latent states after each action.

        latent [batch, latent], actions [K, batch, ...] -> [K + 1, batch, latent].
        """
        latents = [latent]
        for action in actions:
            change = self.dynamics(latent, action)  # type: ignore[misc]
            latent = latent + change
            latents.append(latent)
        return torch.stack(latents)

    def target(self, rows: Batch, name: str, decoder: Decoder) -> tuple[Tensor, Tensor]:
        """Returns the target [time, batch, size] of the decoder of the field `name`, and the mask [time, batch].

        time is K + 1 for observations, and K for results of steps, because no step precedes the first observation.
        """
        mask = rows["mask"]
        if name != "obs":
            values = rows[name].view(*mask.shape, -1)
            return decoder.target(values), mask
        first_obs = index(rows["obs"], slice(0, 1))
        first = decoder.target(first_obs)
        first_mask = mask[:1]
        if self.dynamics is None:
            return first, first_mask
        following = decoder.target(rows["next_obs"])
        return torch.cat([first, following]), torch.cat([first_mask, mask])

    def predict_multi_step(self, latent: Tensor, actions: Tensor) -> Batch:
        """Returns the predictions of all decoders along a sequence of actions.

        latent [batch, latent], actions [batch, K, ...] -> [batch, K + 1, size] by field.
        """
        latents = self.unroll(latent, actions.transpose(0, 1))
        latents = latents.transpose(0, 1)
        return {name: decoder(latents) for name, decoder in self.decoders.items()}


def decoded_fields(cfg: Any) -> list[str]:
    """Returns the names of the decoded fields. Raises ConfigError if there are none, or if a name is unknown."""
    allowed = ["obs"]
    if cfg.unroll_steps:
        allowed.extend(STEP_RESULTS)
    decoded = [name for name, weight in cfg.decode.items() if weight]
    unknown = sorted(set(decoded) - set(allowed))
    if decoded and not unknown:
        return decoded
    key = "algo.representation.decode"
    if unknown:
        key = f"{key}.{unknown[0]}"
    choices = ", ".join(allowed)
    raise ConfigError(f"{key}: must name one or more of {choices} with unroll_steps={cfg.unroll_steps}")
