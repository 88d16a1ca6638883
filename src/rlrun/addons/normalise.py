"""Normalisation by running statistics, as `env.normalize` sets it. Evaluation does not change the statistics."""

from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.addons.rewards.normalise import NormaliseRewards, StandardiseRewards
from rlrun.core.addon import Addon
from rlrun.core.state import RunningMoments, Statistics
from rlrun.envs.config import NormalizeConfig
from rlrun.errors import ConfigError
from rlrun.nested import get, put
from rlrun.networks.inputs import leaves
from rlrun.types import Batch, Context, Metrics, Obs, Spec, Step

REWARDS = {"returns": NormaliseRewards, "rewards": StandardiseRewards}


def normalisers(cfg: NormalizeConfig, spec: Spec, gamma: float | None) -> list[Addon]:
    """Returns the add-ons that `env.normalize` names. gamma: the discount of the algorithm, None if it has none.

    Raises ConfigError if there is nothing to normalise, or no discount.
    """
    addons: list[Addon] = []
    if cfg.kind in ("obs", "both"):
        addons.append(NormaliseObservations(spec, cfg.clip_obs, cfg.epsilon))
    if cfg.kind in ("reward", "both"):
        if cfg.gamma is not None:
            gamma = cfg.gamma
        if gamma is None:
            raise ConfigError(
                f"env.normalize={cfg.kind}: rewards are scaled with their discount, but algo has no gamma; "
                "set env.normalize.gamma"
            )
        kind = REWARDS[cfg.reward_by]
        addons.append(kind(spec, gamma, cfg.clip_reward, cfg.epsilon))
    return addons


class NormaliseObservations(Addon):
    """The agent acts on and learns from normalised observations; buffers store raw ones.

    Of a Dict, only the entries that are vectors of floats are normalised. Collected observations enter the statistics
    after the next update. Acting in a rollout and learning from it therefore use the same statistics, and the
    probability ratio of PPO's first minibatch is exactly 1.
    """

    def __init__(self, spec: Spec, clip: float | None, epsilon: float):
        """clip: limit in standard deviations, None for none. epsilon: added to variances."""
        super().__init__()
        self.clip, self.epsilon = clip, epsilon
        self.paths = [path for path, space in leaves(spec.obs) if _is_normalised(path, space)]
        if not self.paths:
            raise ConfigError(
                "env.normalize: observations must be a Box of floats, or a Dict with vectors of floats, "
                f"but this environment has {spec.obs}"
            )
        self.by_path = tuple(Statistics(get(spec.obs, path).shape) for path in self.paths)
        self.statistics: nn.Module = nn.ModuleList(self.by_path)
        if isinstance(spec.obs, spaces.Box):
            self.statistics = self.by_path[0]

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        return self.normalise(obs), {}

    def acting(self) -> list[RunningMoments]:
        return [statistics.live for statistics in self.by_path]

    def on_step(self, step: Step) -> None:
        for path, statistics in zip(self.paths, self.by_path, strict=True):
            rows = get(step["following"], path)
            if "idle" in step:
                rows = rows[~step["idle"]]
            statistics.add(rows)

    def relabel(self, batch: Batch) -> Batch:
        relabelled = dict(batch)
        for key in ("obs", "next_obs"):
            if key in batch:
                relabelled[key] = self.normalise(batch[key])
        return relabelled

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        for statistics in self.by_path:
            statistics.publish()
        return {}

    def normalise(self, obs: Obs) -> Any:
        """Returns observations whose vectors of floats are standardised and clipped, as float32."""
        for path, statistics in zip(self.paths, self.by_path, strict=True):
            standardised = self._standardised(get(obs, path), statistics.live)
            obs = put(obs, path, standardised)
        return obs

    def _standardised(self, x: Tensor, moments: RunningMoments) -> Tensor:
        scale = (moments.var + self.epsilon).rsqrt()
        standardised = (x - moments.mean) * scale
        if self.clip is not None:
            standardised = standardised.clamp(-self.clip, self.clip)
        return standardised.to(torch.float32)


def _is_normalised(path: tuple[str, ...], space: Space) -> bool:
    """Returns whether an entry of the observation is normalised: a Box of floats, and in a Dict only a vector."""
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return False
    return not path or len(space.shape) <= 1
