"""Prioritised experience replay (Schaul et al. 2016, arXiv 1511.05952), proportional variant."""

from typing import Any

import torch
from torch import Tensor

from rlrun.buffers.replay import Replay
from rlrun.buffers.sum_tree import SumTree
from rlrun.functional.priorities import importance_weight, of_sequences, priority
from rlrun.settings import Fraction, NonNegativeFloat, PositiveFloat, Scheduled, config, register
from rlrun.types import Batch, Step

ALPHA_STEP = 0.01


@register("buffer", "prioritized")
class Prioritized(Replay):
    """Samples transitions in proportion to priorities, each computed from the latest TD error of its transition.

    New transitions get the highest priority so far. The `weight` of a sampled transition is multiplied by its
    importance weight, which corrects the bias of prioritised sampling fully when beta is 1.

    With a schedule of alpha, stored priorities are raised to its new value whenever it has moved by ALPHA_STEP; they
    stay at ALPHA_STEP or above, because priorities of alpha 0 are all 1.
    """

    @config
    class Config(Replay.Config):
        alpha: Scheduled[NonNegativeFloat]
        beta: Scheduled[Fraction]
        divide_weights: bool
        epsilon: PositiveFloat

    needs_errors = True
    highest: Tensor  # the highest priority so far, 0-d
    alpha: Tensor  # with a schedule of alpha: the exponent of the stored priorities, 0-d; negative: unknown

    def __init__(self, cfg: Config, *args: Any):
        super().__init__(cfg, *args)
        self.tree = SumTree(self.ring.capacity * self.spec.num_envs, self.device)
        self.register_buffer("highest", torch.ones((), dtype=torch.float64, device=self.device))
        self.register_buffer("alpha", torch.tensor(max(float(cfg.alpha), ALPHA_STEP), dtype=torch.float64))

    def add(self, step: Step) -> None:
        """Stores one vector step. Once its successors are stored, its transitions have the highest priority so far."""
        oldest = self.first
        super().add(step)
        newest = self.ring.total - 1
        latest_complete = self.num_complete_rows - 1
        if latest_complete >= self.first:
            is_transition = self.read_weight(latest_complete) > 0
            self.tree.set(self.storage_indices(latest_complete), self.highest * is_transition)
        # these rows still provide frames of later stacks, but part of their own stack is overwritten
        for row in range(max(oldest, self.ring.first), self.first):
            self.tree.set(self.storage_indices(row), 0.0)
        if latest_complete < newest:
            self.tree.set(self.storage_indices(newest), 0.0)

    def sample(self, size: int) -> Batch:
        """Returns a batch of transitions, drawn in proportion to their priorities with replacement."""
        self.follow_alpha()
        uniform = self.stream.uniform(len(self.tree.levels), size)
        storage_index = self.tree.sample(uniform)
        probability = self.tree.get(storage_index) / self.tree.total
        correction = importance_weight(probability, len(self), float(self.cfg.beta))
        if self.cfg.divide_weights:
            correction = correction / correction.max()
        batch = self.drawn(self.flat_index(storage_index))
        batch["weight"] = batch["weight"] * correction.to(batch["weight"].dtype)
        return batch

    def feedback(self, batch: Batch, error: Tensor) -> None:
        """Updates the priorities of a batch from the TD errors that the agent returned, [batch] or [time * batch]."""
        error = error.abs().to(torch.float64)
        batch_size = len(batch["index"])
        if len(error) > batch_size:
            error = error.view(-1, batch_size)
            weight = batch["weight"].view(-1, batch_size)
            error = of_sequences(error, weight)
        new_priority = priority(error, self.exponent, self.cfg.epsilon)
        self.tree.set(self.storage_index(batch["index"]), new_priority)
        self.highest.copy_(torch.maximum(self.highest, new_priority.max()))

    @property
    def exponent(self) -> float:
        """The exponent of the stored priorities."""
        if isinstance(self.cfg.alpha, Tensor):
            return float(self.alpha)
        return self.cfg.alpha

    def follow_alpha(self) -> None:
        """Raises all priorities to the present value of a schedule of alpha, if it has moved by ALPHA_STEP."""
        if not isinstance(self.cfg.alpha, Tensor):
            return
        present = max(float(self.cfg.alpha), ALPHA_STEP)
        if self.exponent < 0:  # of a run before format 10, whose priorities have the alpha of their time
            self.alpha.fill_(present)
        elif abs(present - self.exponent) >= ALPHA_STEP:
            power = present / self.exponent
            self.tree.raise_to(power)
            self.highest.pow_(power)
            self.alpha.fill_(present)

    def clear(self) -> None:
        """Removes every transition."""
        super().clear()
        self.tree.clear()
        self.highest.fill_(1.0)

    def storage_indices(self, row: int) -> Tensor:
        """Returns the storage indices of the transitions in one row, [num_envs]."""
        first = (row % self.ring.capacity) * self.spec.num_envs
        return torch.arange(first, first + self.spec.num_envs, device=self.device)

    def flat_index(self, storage_index: Tensor) -> Tensor:
        """Returns the flat indices, row * num_envs + env, of the transitions at storage indices [batch]."""
        if self.ring.first == 0:  # nothing was overwritten yet, so both indices are equal
            return storage_index
        size = self.ring.capacity * self.spec.num_envs
        newest = self.ring.total * self.spec.num_envs - 1
        steps_back = (newest - storage_index) % size  # from the newest transition to the latest one stored there
        return newest - steps_back

    def read_weight(self, row: int) -> Tensor:
        """Returns the weights of one row, [num_envs]; 0 for masked steps."""
        column = self.packing.slices["weight"].start
        place = row % self.ring.capacity
        return self.ring.memory["rows"][place][:, column]
