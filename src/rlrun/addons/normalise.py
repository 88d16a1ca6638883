"""Normalisation by running statistics, as `env.normalize` sets it. Evaluation does not change the statistics."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.addons.rewards.normalise import NormaliseRewards, StandardiseRewards, valid_rows
from rlrun.core.addon import Addon
from rlrun.core.state import RunningMoments
from rlrun.core.statistics import statistics_of
from rlrun.envs.config import NormalizeConfig
from rlrun.errors import ConfigError
from rlrun.nested import get, put
from rlrun.networks.inputs import leaves
from rlrun.types import Batch, Context, Discount, Metrics, Obs, Spec, Step

REWARDS = {"returns": NormaliseRewards, "rewards": StandardiseRewards}
KEY = "env.normalize"


def normalisers(
    cfg: NormalizeConfig, spec: Spec, gamma: Discount | None, n_step: int = 1, phases: Sequence[str] = ("rollout",)
) -> list[Addon]:
    """Returns the add-ons that `env.normalize` names. gamma: the discount of the algorithm, None if it has none.

    n_step: number of rewards in the returns of a batch. phases: those of the loop (`Loop.phases`).
    Raises ConfigError if there is nothing to normalise, if there is no discount, or if statistics would have no rows.
    """
    if cfg.kind == "none":
        return []
    faults = [*_without_rows(cfg, spec, n_step, phases)]
    if faults:
        raise ConfigError(*faults)
    addons: list[Addon] = []
    if cfg.kind in ("obs", "both"):
        addons.append(NormaliseObservations(spec, cfg))
    if cfg.kind in ("reward", "both"):
        if cfg.gamma is not None:
            gamma = cfg.gamma
        if gamma is None:
            raise ConfigError(
                f"env.normalize={cfg.kind}: rewards are scaled with their discount, but algo has no gamma; "
                "set env.normalize.gamma"
            )
        kind = REWARDS[cfg.reward_by]
        addons.append(kind(spec, gamma, cfg))
    return addons


def _without_rows(cfg: NormalizeConfig, spec: Spec, n_step: int, phases: Sequence[str]) -> Iterator[str]:
    """Yields why the phase in which statistics are updated has no rows for them."""
    setting = f"{KEY}.update_on={cfg.update_on}"
    if cfg.update_on not in phases:
        yield f"{setting}: algo.loop has no such phase; choose {' or '.join(phases)}"
    if cfg.update_on == "rollout" or cfg.kind == "obs":
        return
    if cfg.reward_by == "returns":
        yield f"{setting}: batches hold no returns of whole episodes; set {KEY}.reward_by=rewards"
    elif n_step > 1 or spec.holds:
        why = "the wrapper hold" if spec.holds else f"algo.n_step={n_step}"
        yield f"{setting}: with {why}, batches hold sums of rewards, not single ones; set {KEY}.update_on=rollout"


class NormaliseObservations(Addon):
    """The agent acts on and learns from normalised observations; buffers store raw ones.

    Of a Dict, only the entries that are vectors of floats are normalised, or those in `fields`. New rows enter the
    statistics after the next update. Acting in a rollout and learning from it therefore use the same statistics, and
    the probability ratio of PPO's first minibatch is exactly 1.
    """

    def __init__(self, spec: Spec, cfg: NormalizeConfig):
        super().__init__()
        self.cfg = cfg
        self.paths = chosen_paths(spec.obs, cfg.fields)
        key = f"{KEY}.statistics"
        self.by_path = tuple(statistics_of(cfg.statistics, get(spec.obs, path).shape, key) for path in self.paths)
        self.statistics: nn.Module = nn.ModuleList(self.by_path)
        if isinstance(spec.obs, spaces.Box):
            self.statistics = self.by_path[0]

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        return self.normalise(obs), {}

    def acting(self) -> list[RunningMoments]:
        return [statistics.live for statistics in self.by_path]

    def on_step(self, step: Step) -> None:
        if self.cfg.update_on != "rollout":
            return
        for path, statistics in zip(self.paths, self.by_path, strict=True):
            rows = get(step["following"], path)
            if "idle" in step:
                rows = rows[~step["idle"]]
            statistics.add(rows)

    def on_batch(self, batch: Batch, phase: str) -> None:
        if self.cfg.update_on != phase:
            return
        is_valid = valid_rows(batch)
        for path, statistics in zip(self.paths, self.by_path, strict=True):
            statistics.add(get(batch["obs"], path)[is_valid])

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
        scale = (moments.var + self.cfg.epsilon).rsqrt()
        if self.cfg.zero_mean:
            x = x - moments.mean
        standardised = x * scale
        clip = self.cfg.clip_obs
        if clip is not None:
            standardised = standardised.clamp(-clip, clip)
        return standardised.to(torch.float32)


def chosen_paths(space: Space, fields: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the paths of the entries of an observation to normalise: those of the fields, all possible ones if [].

    Raises ConfigError if there are none, or if one of the fields is not possible.
    """
    possible = {".".join(path): path for path, leaf in leaves(space) if _is_normalised(path, leaf)}
    if not possible:
        raise ConfigError(
            "env.normalize: observations must be a Box of floats, or a Dict with vectors of floats, "
            f"but this environment has {space}"
        )
    unknown = [field for field in fields if field not in possible or not field]
    if unknown and isinstance(space, spaces.Box):
        raise ConfigError(f"{KEY}.fields={fields}: names entries of a Dict, but observations are a Box; set []")
    if unknown:
        raise ConfigError(f"{KEY}.fields={fields}: must be among {', '.join(possible)}, the vectors of floats")
    return [path for field, path in possible.items() if not fields or field in fields]


def _is_normalised(path: tuple[str, ...], space: Space) -> bool:
    """Returns whether an entry of the observation is normalised: a Box of floats, and in a Dict only a vector."""
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return False
    return not path or len(space.shape) <= 1
