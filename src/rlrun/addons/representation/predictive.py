"""Latent state that replaces the observation, trained to predict the next K steps (ALF's predictive representation).

From every step, the latent state is unrolled along the next K actions. From the K + 1 latent states, decoders predict
the K + 1 observations, and results of the K actions such as the reward. Steps after the end of an episode are masked.
K = 0 is an autoencoder. The encoder is trained only by these losses: agents get latent states without gradients.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.buffers.consecutive import next_steps
from rlrun.buffers.minibatches import minibatches
from rlrun.core.addon import Addon
from rlrun.core.agent import kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean
from rlrun.nested import index
from rlrun.networks.heads import Head
from rlrun.networks.inputs import FlattenInputs
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
from rlrun.tensors import flat
from rlrun.types import MASK, Batch, Context, Metrics, Obs, Spec

STEP_RESULTS = ("reward", "terminated")  # fields that a step returns together with the next observation
TRAINING_KEYS = ("obs", "next_obs", "action", *STEP_RESULTS, "truncated", "weight", "mask")


@register("representation", "predictive")
class Predictive(Addon):
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
        latent = spaces.Box(-np.inf, np.inf, (cfg.latent,), np.float32)
        self.plain = FlattenInputs(spec.obs)
        self.encoder = self.head([spec.obs], cfg.latent)
        self.dynamics = None
        if cfg.unroll_steps:
            self.dynamics = self.head([latent, spec.action], cfg.latent)
        sizes = {"obs": self.plain.size, "reward": spec.reward_dim, "terminated": 1}
        self.decoders = nn.ModuleDict({name: self.head([latent], sizes[name]) for name in decoded})
        self.optim = Optim(self.parameters(), cfg.learning_rate)
        self.shuffle = parts.stream("shuffle")

    def head(self, inputs: list[Space], outputs: int) -> Head:
        """Returns a new network with inputs of these spaces."""
        torso = registry.build("network", self.network, inputs, None)
        return Head(torso, outputs)

    def spec_after(self, spec: Spec) -> Spec:
        latent: Space = spaces.Box(-np.inf, np.inf, (self.cfg.latent,), np.float32)
        if isinstance(spec.obs, spaces.Dict) and MASK in spec.obs.spaces:
            latent = spaces.Dict({"obs": latent, MASK: spec.obs[MASK]})
        return replace(spec, obs=latent, frame_stack=1)

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        latent = self.encode(obs)
        return with_action_mask(latent, obs), {}

    def acting(self) -> tuple[nn.Module]:
        return (self.encoder,)

    @policy
    def encode(self, obs: Obs) -> Tensor:
        """Returns latent states, [batch, latent]."""
        return self.encoder(obs)

    def encode_rows(self, obs: Obs, leading: torch.Size) -> Any:
        """Returns latent states of observations [*leading, ...], with action masks if the environment has them."""
        if len(leading) == 1:
            latent = self.encode(obs)
        else:
            latent = self.encode(flat(obs)).unflatten(0, leading)
        return with_action_mask(latent, obs)

    def relabel(self, batch: Batch) -> Batch:
        rows: Any = batch.get("next_steps", batch)  # on-policy batches have no next_steps: take the whole rollout
        training_batch: Any = {name: rows[name] for name in TRAINING_KEYS if name in rows}
        leading = batch["terminated"].shape
        relabelled = dict(batch)
        relabelled.pop("next_steps", None)
        relabelled["obs"] = self.encode_rows(batch["obs"], leading)
        relabelled["next_obs"] = self.encode_rows(batch["next_obs"], leading)
        relabelled["training_batch"] = training_batch
        return relabelled

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        rows: Any = batch["training_batch"]
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
            target, mask = self.target(rows, name)
            predicted = decoder(latents[-len(mask) :])  # all K + 1 latent states, or the last K
            huber = F.smooth_l1_loss(predicted, target, reduction="none")
            error = masked_mean(huber.mean(-1), mask)
            loss = loss + self.cfg.decode[name] * error
            metrics[f"loss/representation_{name}"] = error.detach()
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

    def target(self, rows: Batch, name: str) -> tuple[Tensor, Tensor]:
        """Returns the target [time, batch, size] and the mask [time, batch] of the decoder `name`.

        time is K + 1 for observations, and K for results of steps, because no step precedes the first observation.
        """
        mask = rows["mask"]
        if name != "obs":
            values = rows[name].float()
            return values.view(*mask.shape, -1), mask
        first_obs = index(rows["obs"], slice(0, 1))
        first = self.plain(first_obs)
        first_mask = mask[:1]
        if self.dynamics is None:
            return first, first_mask
        following = self.plain(rows["next_obs"])
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


def with_action_mask(latent: Tensor, obs: Obs) -> Any:
    """Returns the latent state, together with the action mask if the observation has one."""
    if isinstance(obs, dict) and MASK in obs:
        return {"obs": latent, MASK: obs[MASK]}
    return latent
