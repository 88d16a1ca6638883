"""Critics of on-policy agents: the loss of a value function, and one with an optimiser of its own."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from rlrun.core.agent import kernel
from rlrun.core.state import OPTIMIZERS
from rlrun.functional.losses import average, clipped_value_error, explained_variance
from rlrun.networks.heads import Value
from rlrun.types import Batch, Metrics


def critic(cfg: Any, parts: Any, torso: nn.Module, columns: int) -> Value | None:
    """The value function that `cfg`, the agent's, speaks of; `torso` is the policy's, for one that shares it."""
    if cfg.critic == "none":
        return None
    if cfg.critic in ("split", "first"):
        return FittedValue(parts.torso("critic"), cfg, columns)
    if cfg.critic == "joint":
        torso = parts.torso("critic")
    return Value(torso, gain=1.0, columns=columns)


def explained(data: Batch) -> Metrics:
    """How much of the returns the critic said beforehand; of several columns, of the first."""
    weight = data["weight"]
    value, target = (data[key].view(*weight.shape, -1)[..., 0] for key in ("value", "return"))
    return {"explained_variance": explained_variance(value, target, weight)}


def value_loss(value: Value, batch: Batch, clip_value: float | None) -> Tensor:
    """Half the squared error to the returns, summed over columns; where clipped, the worse one of moving at most so far
    from the old value (the common implementations' PPO2)."""
    limit = float("inf") if clip_value is None else clip_value
    error = clipped_value_error(value(batch["obs"]), batch["value"], batch["return"], limit)
    weight = batch["weight"]
    return average(error if error.dim() == weight.dim() else error.sum(-1), weight)


class FittedValue(Value):
    """A value function that takes its own steps. `cfg` is the agent's."""

    def __init__(self, torso: Any, cfg: Any, columns: int):
        super().__init__(torso, gain=1.0, columns=columns)
        self.cfg = cfg
        rate = cfg.learning_rate if cfg.value_learning_rate is None else cfg.value_learning_rate
        self.optim = OPTIMIZERS[cfg.optimizer](
            self.parameters(), rate, eps=cfg.optimizer_eps, max_grad_norm=cfg.max_grad_norm, schedule=cfg.lr_schedule
        )

    def fit_all(self, epochs: Iterable[list[Batch]], progress: float) -> Metrics:
        """Every minibatch of every epoch."""
        metrics: Metrics = {}
        for epoch in epochs:
            self.optim.tick(progress)
            for batch in epoch:
                metrics = self.fit(batch)
        return metrics

    @kernel
    def fit(self, batch: Batch) -> Metrics:
        loss = value_loss(self, batch, self.cfg.clip_value)
        self.optim.step(self.cfg.value_coef * loss)
        return {"value": loss.detach()}
