"""Observations to mean 0 and deviation 1."""

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.core.state import RunningMoments
from rlrun.errors import ConfigError
from rlrun.types import Batch, Context, Metrics, Spec, Step

CLIP = 10.0  # deviations


class NormaliseObservations(Addon):
    """Buffers keep raw observations; the agent acts on and learns from normalised ones.

    What is collected counts from the next update on, so that a rollout is acted on and learned from with the same
    statistics and PPO's first ratio is exactly 1.
    """

    def __init__(self, spec: Spec):
        super().__init__()
        if not isinstance(spec.obs, spaces.Box) or spec.obs.dtype.kind != "f":
            raise ConfigError(
                f"env.normalize: observations must be a Box of floats; this environment has {spec.obs}, not supported"
            )
        self.live = RunningMoments(spec.obs.shape)
        self.pending = RunningMoments(spec.obs.shape)

    def see(self, obs: Tensor, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        return self.normalise(obs), {}

    def acting(self) -> tuple[RunningMoments]:
        return (self.live,)

    def collect(self, obs: Tensor, step: Step, extras: Batch) -> None:
        self.pending.add(step.obs)

    def relabel(self, batch: Batch) -> Batch:
        changed: dict[str, Any] = {key: self.normalise(batch[key]) for key in ("obs", "next_obs") if key in batch}
        return batch | changed

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        self.live.take(self.pending)
        return {}

    def normalise(self, obs: Tensor) -> Tensor:
        scale = (self.live.var + 1e-8).rsqrt()
        return ((obs - self.live.mean) * scale).clamp(-CLIP, CLIP).to(torch.float32)
