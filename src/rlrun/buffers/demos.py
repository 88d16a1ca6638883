"""Demonstrations to be replayed among what is collected (PPO+D: Libardi et al. 2020, arXiv 2007.03328).

Reward demonstrations were given, or are the agent's own that earned as much; value demonstrations are its failures,
known by the highest value that the critic predicted along them.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from rlrun.buffers.replay import Targets
from rlrun.config.schema import Fraction, NonNegativeFloat, PositiveInt, config
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.nested import mapped, on
from rlrun.registry import register
from rlrun.types import Spec

Demo = dict[str, Any]
"""obs [steps + 1, ...], action [steps, ...], reward [steps], `terminated`, `kind` (given | own | value), and `worth`:
the return, or of value demonstrations the highest value predicted."""


@register("buffer", "demos")
class Demos(nn.Module):
    """Two pools that share a capacity. With every success of the agent rho grows at the expense of phi."""

    @config
    class Config:
        capacity: PositiveInt
        rho: Fraction
        phi: Fraction
        alpha: NonNegativeFloat
        reward_threshold: float | None
        given: str | None
        own: str | None
        supplementary: str | None
        data_env: Literal["same", "any"]
        save_to: str | None
        save_every: PositiveInt
        num_saved: PositiveInt

    def __init__(self, cfg: Any, spec: Spec, targets: Targets, seed: int, device: torch.device):
        super().__init__()
        if cfg.rho + cfg.phi >= 1:
            raise ConfigError(f"algo.buffer.rho + algo.buffer.phi = {cfg.rho + cfg.phi:g}: must be less than 1")
        self.cfg, self.device = cfg, device
        self.stream = Stream(seed, "demos")
        self.reward_demos: list[Demo] = []
        self.value_demos: list[Demo] = []
        self.rho, self.phi = cfg.rho, cfg.phi
        self.first_values = self.value_capacity = cfg.capacity  # places for value demonstrations

    def begin(self, given: list[Demo], own: list[Demo]) -> None:
        """The demonstrations to start with. Those given are never dropped."""
        self.reward_demos = [demo | {"kind": "given"} for demo in given] + [demo | {"kind": "own"} for demo in own]
        if len(self.reward_demos) > self.cfg.capacity:
            raise ConfigError(
                f"algo.buffer.capacity={self.cfg.capacity}: there are {len(self.reward_demos)} demonstrations already"
            )
        self.first_values = self.value_capacity = self.cfg.capacity - len(self.reward_demos)

    def __len__(self) -> int:
        return len(self.reward_demos) + len(self.value_demos)

    @property
    def threshold(self) -> float:
        """What an episode must earn to be a reward demonstration."""
        least = -float("inf") if self.cfg.reward_threshold is None else self.cfg.reward_threshold
        return min((demo["worth"] for demo in self.reward_demos), default=least)

    def draw(self) -> Demo | None:
        """What an environment would do next: replay a demonstration, or None: an episode of its own."""
        source, which = self.stream.uniform(2).tolist()
        if source < self.rho:
            return pick(self.reward_demos, torch.ones(len(self.reward_demos)), which)
        if source < self.rho + self.phi:
            return pick(self.value_demos, priorities([d["worth"] for d in self.value_demos], self.cfg.alpha), which)
        return None

    def add(self, episode: Demo, highest_value: float) -> None:
        """An episode of the agent's own. Its end after the last positive reward teaches nothing about rewards."""
        paid = (episode["reward"] > 0).nonzero()
        earned = float(episode["reward"].sum())
        if len(paid) and earned >= self.threshold:
            self.add_success(cut(episode, int(paid[-1]) + 1) | {"kind": "own", "worth": earned})
        else:
            self.value_demos.append(episode | {"kind": "value", "worth": highest_value})
        self.evict()

    def add_success(self, demo: Demo) -> None:
        """One more reward demonstration. A new best drops the agent's own weaker ones."""
        best = max((other["worth"] for other in self.reward_demos), default=-float("inf"))
        if demo["worth"] > best:
            self.reward_demos = [other for other in self.reward_demos if other["kind"] == "given"]
        self.reward_demos.append(demo)
        share = self.cfg.phi / max(self.first_values, 1)
        self.rho = min(self.rho + share, self.cfg.rho + self.cfg.phi)
        self.phi = self.cfg.rho + self.cfg.phi - self.rho
        self.value_capacity = max(self.value_capacity - 1, 0)

    def refresh(self, demo: Demo, highest_value: float) -> None:
        """A demonstration was replayed: what the critic now predicts along it."""
        if demo["kind"] == "value":
            demo["worth"] = highest_value

    def evict(self) -> None:
        """Value demonstrations of the lowest value first, then the agent's own rewarded ones, the longest first."""
        self.value_demos.sort(key=lambda demo: demo["worth"])
        places = min(self.value_capacity, max(self.cfg.capacity - len(self.reward_demos), 0))
        self.value_demos = self.value_demos[max(len(self.value_demos) - places, 0) :]
        while len(self) > self.cfg.capacity:
            own = [demo for demo in self.reward_demos if demo["kind"] == "own"]
            longest = max(own, key=lambda demo: len(demo["reward"]))
            self.reward_demos = [demo for demo in self.reward_demos if demo is not longest]

    def best(self) -> list[Demo]:
        """The agent's own that earned most, to be saved."""
        own = [demo for demo in self.reward_demos if demo["kind"] == "own"]
        return sorted(own, key=lambda demo: -demo["worth"])[: self.cfg.num_saved]

    STATE = ("reward_demos", "value_demos", "rho", "phi", "first_values", "value_capacity")

    def get_extra_state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.STATE}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name in self.STATE:
            setattr(self, name, on(self.device, state[name]))


def pick(demos: list[Demo], weight: Tensor, uniform: float) -> Demo | None:
    """One of them with probabilities in proportion to `weight`; None of none."""
    if not demos:
        return None
    place = int(torch.searchsorted(weight.cumsum(0), uniform * float(weight.sum()), right=True))
    return demos[min(place, len(demos) - 1)]


def priorities(values: list[float], alpha: float) -> Tensor:
    """values^alpha, shifted to be none below 0 and scaled to at most 1; all alike where all are 0."""
    v = torch.tensor(values, dtype=torch.float64)
    v = v - v.min().clamp(max=0) if len(v) else v
    return (v / v.max()) ** alpha if len(v) and v.max() > 0 else torch.ones_like(v)


def cut(demo: Demo, steps: int) -> Demo:
    """Its first steps."""

    def head(tree: Any, rows: int) -> Any:
        return mapped(lambda part: part[:rows].clone(), tree)

    whole = steps == len(demo["reward"])
    short = {"obs": head(demo["obs"], steps + 1)} | {key: head(demo[key], steps) for key in ("action", "reward")}
    return demo | short | {"terminated": demo["terminated"] and whole}
