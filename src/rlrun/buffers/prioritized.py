"""Prioritised experience replay (Schaul et al. 2016, arXiv 1511.05952), proportional variant."""

from typing import Any

import torch

from rlrun.buffers.replay import Replay
from rlrun.buffers.sum_tree import SumTree
from rlrun.config.schema import Fraction, NonNegativeFloat, PositiveFloat, config
from rlrun.functional.priorities import importance_weight, of_sequences, priority
from rlrun.registry import register
from rlrun.types import Batch, Metrics, Step


@register("buffer", "prioritized")
class Prioritized(Replay):
    """Draws rows by the error they last had; new rows come first. `weight` corrects for it, fully once beta is 1."""

    @config
    class Config(Replay.Config):
        alpha: NonNegativeFloat
        beta: Fraction
        beta_final: Fraction
        epsilon: PositiveFloat

    def __init__(self, cfg: Any, *parts: Any):
        super().__init__(cfg, *parts)
        self.tree = SumTree(self.ring.capacity * self.spec.num_envs, self.device)
        self.register_buffer("highest", torch.ones((), dtype=torch.float64, device=self.device))

    def add(self, obs: Any, action: Any, step: Step, extras: Batch) -> None:
        oldest = self.first
        super().add(obs, action, step, extras)
        newest = self.ring.total - 1
        ready = newest - (self.frames is not None)  # the latest row that can be sampled
        if ready >= self.first:
            weight = self.read_weight(ready)
            self.tree.set(self.places(ready), self.highest * (weight > 0))
        for row in range(max(oldest, self.ring.first), self.first):  # frames are needed, but their own stacks are gone
            self.tree.set(self.places(row), 0.0)
        if ready < newest:
            self.tree.set(self.places(newest), 0.0)

    def sample(self, size: int, progress: float = 0.0) -> Batch:
        place = self.tree.sample(self.stream.uniform(len(self.tree.levels), size))
        probability = self.tree.get(place) / self.tree.total
        beta = self.cfg.beta + (self.cfg.beta_final - self.cfg.beta) * progress
        correction = importance_weight(probability, len(self), beta)
        batch = self.read(self.number(place))
        batch["weight"] = batch["weight"] * correction.to(batch["weight"].dtype)
        return batch

    def feedback(self, batch: Batch, out: Metrics | tuple[Metrics, torch.Tensor]) -> None:
        if not isinstance(out, tuple):
            return
        error = out[1].abs().to(torch.float64)
        if len(error) > len(batch["index"]):
            error = of_sequences(error.view(-1, len(batch["index"])), batch["weight"].view(-1, len(batch["index"])))
        found = priority(error, self.cfg.alpha, self.cfg.epsilon)
        self.tree.set(self._place(batch["index"]), found)
        self.highest.copy_(torch.maximum(self.highest, found.max()))

    def clear(self) -> None:
        super().clear()
        self.tree.clear()
        self.highest.fill_(1.0)

    def places(self, row: int) -> torch.Tensor:
        """Leaves of all environments of one absolute row."""
        first = (row % self.ring.capacity) * self.spec.num_envs
        return torch.arange(first, first + self.spec.num_envs, device=self.device)

    def number(self, place: torch.Tensor) -> torch.Tensor:
        """The absolute number, row * num_envs + env, of what lies at a place now."""
        if self.ring.first == 0:
            return place
        size = self.ring.capacity * self.spec.num_envs
        newest = self.ring.total * self.spec.num_envs  # one past
        return newest - 1 - (newest - 1 - place) % size

    def read_weight(self, row: int) -> torch.Tensor:
        """Of all environments of one row: 0 where it is no transition."""
        return self.ring.memory["rows"][row % self.ring.capacity][:, self.packing.slices["weight"].start]
