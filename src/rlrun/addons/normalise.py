"""Normalisation by running statistics, as `env.normalize` names it. Evaluation does not change the statistics."""

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.addons.rewards.normalise import NormaliseRewards
from rlrun.core.addon import Addon
from rlrun.core.state import RunningMoments, Statistics
from rlrun.errors import ConfigError
from rlrun.types import Batch, Context, Metrics, Spec, Step

CLIP = 10.0  # standard deviations


def normalisers(kind: str, spec: Spec, gamma: float | None) -> list[Addon]:
    """Returns the add-ons that `env.normalize` names: none, obs, reward or both."""
    addons: list[Addon] = []
    if kind in ("obs", "both"):
        addons.append(NormaliseObservations(spec))
    if kind in ("reward", "both"):
        if gamma is None:
            raise ConfigError(f"env.normalize={kind}: rewards are scaled by discounted returns, but algo has no gamma")
        addons.append(NormaliseRewards(spec, gamma))
    return addons


class NormaliseObservations(Addon):
    """The agent acts on and learns from normalised observations; buffers store raw ones.

    Collected observations enter the statistics only after the next update. Acting in a rollout and learning from it
    therefore use the same statistics, and the probability ratio of PPO's first minibatch is exactly 1.
    """

    def __init__(self, spec: Spec):
        super().__init__()
        if not isinstance(spec.obs, spaces.Box) or spec.obs.dtype.kind != "f":
            raise ConfigError(
                f"env.normalize: observations must be a Box of floats, but this environment has {spec.obs}"
            )
        self.statistics = Statistics(spec.obs.shape)

    def see(self, obs: Tensor, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        return self.normalise(obs), {}

    def acting(self) -> tuple[RunningMoments]:
        return (self.statistics.live,)

    def collect(self, obs: Tensor, step: Step, extras: Batch) -> None:
        self.statistics.add(step.obs)

    def relabel(self, batch: Batch) -> Batch:
        relabelled = dict(batch)
        for key in ("obs", "next_obs"):
            if key in batch:
                relabelled[key] = self.normalise(batch[key])
        return relabelled

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        self.statistics.publish()
        return {}

    def normalise(self, obs: Tensor) -> Tensor:
        """Returns observations as float32, standardised and clipped."""
        moments = self.statistics.live
        scale = (moments.var + 1e-8).rsqrt()
        standardised = (obs - moments.mean) * scale
        return standardised.clamp(-CLIP, CLIP).to(torch.float32)
