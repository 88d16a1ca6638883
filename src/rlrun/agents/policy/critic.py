"""Critics of on-policy agents: the loss of a value function, and one with an optimiser of its own."""

from typing import Any

from torch import Tensor

from rlrun.core.agent import kernel
from rlrun.core.state import OPTIMIZERS
from rlrun.functional.losses import average, clipped_value_error
from rlrun.networks.heads import Value
from rlrun.types import Batch, Metrics


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
            self.parameters(), rate, eps=1e-5, max_grad_norm=cfg.max_grad_norm, schedule=cfg.lr_schedule
        )

    @kernel
    def fit(self, batch: Batch) -> Metrics:
        loss = value_loss(self, batch, self.cfg.clip_value)
        self.optim.step(self.cfg.value_coef * loss)
        return {"value": loss.detach()}
