"""A latent state from which the future can be told, in the observation's place (the predictive representation of ALF).

From every step the latent state is unrolled along the next K actions, and of each of the K + 1 states the fields of its
step are decoded: the observation, and what came with it, such as the reward. Past the end of an episode nothing counts.
K = 0 is an autoencoder. It learns from these losses alone; those of the agent do not reach it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun import registry
from rlrun.buffers.rollout import ahead, minibatches
from rlrun.config.schema import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Size, Units, config
from rlrun.core.addon import Addon
from rlrun.core.agent import kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.losses import average
from rlrun.nested import flat, index
from rlrun.networks.heads import Head
from rlrun.networks.inputs import Flatten
from rlrun.registry import register
from rlrun.types import MASK, Batch, Context, Metrics, Spec

ARRIVING = ("reward", "terminated")  # fields that come with the successor of a step
LESSON = ("obs", "next_obs", "action", *ARRIVING, "truncated", "weight")


@register("representation", "predictive")
class Predictive(Addon):
    @config
    class Config:
        latent: Units
        unroll_steps: NonNegativeInt
        decode: dict[str, NonNegativeFloat]
        hidden: list[Units]
        learning_rate: PositiveFloat
        epochs: PositiveInt
        minibatch_size: Size | None

    def __init__(self, cfg: Any, spec: Spec, parts: Parts):
        super().__init__()
        known = ("obs", *ARRIVING) if cfg.unroll_steps else ("obs",)
        told = {name: weight for name, weight in cfg.decode.items() if weight}
        if not told or (unknown := sorted({*told} - {*known})):
            fault = f".{unknown[0]}" if told else ""
            at = f" with unroll_steps={cfg.unroll_steps}"
            raise ConfigError(f"algo.representation.decode{fault}: must name one or more of {', '.join(known)}{at}")
        self.cfg, self.ahead = cfg, max(1, cfg.unroll_steps)
        layers = {"hidden": cfg.hidden, "activation": "relu", "init": "orthogonal", "norm": {"name": "none"}}
        self.network = {"name": "auto"} | layers
        latent = spaces.Box(-np.inf, np.inf, (cfg.latent,), np.float32)
        self.plain = Flatten(spec.obs)
        self.encoder = self.head([spec.obs], cfg.latent)
        self.dynamics = self.head([latent, spec.action], cfg.latent) if cfg.unroll_steps else None
        sizes = {"obs": self.plain.size, "reward": spec.reward_dim, "terminated": 1}
        self.decoders = nn.ModuleDict({name: self.head([latent], sizes[name]) for name in told})
        self.optim = Optim(self.parameters(), cfg.learning_rate)
        self.shuffle = parts.stream("shuffle")

    def head(self, inputs: list[Space], outputs: int) -> Head:
        return Head(registry.build("network", self.network, inputs, None), outputs)

    def spec(self, spec: Spec) -> Spec:
        latent: Space = spaces.Box(-np.inf, np.inf, (self.cfg.latent,), np.float32)
        if isinstance(spec.obs, spaces.Dict) and MASK in spec.obs.spaces:
            latent = spaces.Dict({"obs": latent, MASK: spec.obs[MASK]})
        return replace(spec, obs=latent, frame_stack=1)

    def see(self, obs: Any, carry: Batch, explore: bool) -> tuple[Any, Batch]:
        return masked(self.encode(obs), obs), {}

    def acting(self) -> tuple[nn.Module]:
        return (self.encoder,)

    @policy
    def encode(self, obs: Any) -> Tensor:
        """Latent states [batch, latent]."""
        return self.encoder(obs)

    def latents(self, obs: Any, lead: torch.Size) -> Tensor:
        """The same of rows [batch, ...] or [time, batch, ...]."""
        return self.encode(obs) if len(lead) == 1 else self.encode(flat(obs)).unflatten(0, lead)

    def relabel(self, batch: Batch) -> Batch:
        lead = batch["terminated"].shape
        seen = {name: self.latents(batch[name], lead) for name in ("obs", "next_obs")}
        rows = batch.get("ahead", batch)  # of replay, or the whole rollout
        lesson = {name: rows[name] for name in (*LESSON, "mask") if name in rows}
        own = {name: masked(latent, batch[name]) for name, latent in seen.items()} | {"lesson": lesson}
        return {name: value for name, value in batch.items() if name != "ahead"} | own

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        lesson, metrics = batch["lesson"], dict[str, Tensor]()
        if "mask" in lesson:  # steps in a row already
            return self.fit(lesson)
        weight = lesson["weight"]
        steps = {"row": torch.arange(weight.numel(), device=weight.device).view_as(weight), "weight": weight}
        for epoch in minibatches(steps, self.cfg.epochs, self.cfg.minibatch_size, self.shuffle):
            for start in epoch:
                metrics = self.fit(ahead(lesson, start["row"], self.ahead))
        return metrics

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        """rows: steps in a row [steps, batch, ...], `mask` 1 while the episode of the first goes on."""
        actions = rows["action"] if self.dynamics is not None else rows["action"][:0]
        latents = self.unroll(self.encoder(index(rows["obs"], 0)), actions)
        loss, metrics = latents.new_zeros(()), dict[str, Tensor]()
        for name, decoder in self.decoders.items():
            target, mask = self.target(rows, name)
            told = decoder(latents[-len(mask) :])
            error = average(F.smooth_l1_loss(told, target, reduction="none").mean(-1), mask)
            loss = loss + self.cfg.decode[name] * error
            metrics[f"representation_{name}"] = error.detach()
        self.optim.step(loss)
        return metrics

    def unroll(self, latent: Tensor, actions: Tensor) -> Tensor:
        """The latent state and those after each action: [batch, latent], [K, batch, ...] -> [K + 1, batch, latent]."""
        latents = [latent]
        for action in actions:
            latents.append(latents[-1] + self.dynamics(latents[-1], action))  # type: ignore[misc]
        return torch.stack(latents)

    def target(self, rows: Batch, name: str) -> tuple[Tensor, Tensor]:
        """What is to be decoded [time, batch, size], and what of it counts: K + 1 observations, or K of what comes with
        a step and so did not before the first."""
        mask = rows["mask"]
        if name != "obs":
            return rows[name].float().view(*mask.shape, -1), mask
        first = self.plain(index(rows["obs"], slice(0, 1)))
        if self.dynamics is None:
            return first, mask[:1]
        return torch.cat([first, self.plain(rows["next_obs"])]), torch.cat([mask[:1], mask])

    def predict_multi_step(self, latent: Tensor, actions: Tensor) -> Batch:
        """Every field along a plan: latent [batch, latent], actions [batch, K, ...] -> [batch, K + 1, size]."""
        latents = self.unroll(latent, actions.transpose(0, 1)).transpose(0, 1)
        return {name: decoder(latents) for name, decoder in self.decoders.items()}


def masked(latent: Tensor, obs: Any) -> Any:
    """The latent state with the mask of actions that the observation had."""
    return {"obs": latent, MASK: obs[MASK]} if isinstance(obs, dict) and MASK in obs else latent
