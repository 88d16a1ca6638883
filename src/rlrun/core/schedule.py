"""Learning rates over time: linear over the run, or any scheduler of torch.optim.lr_scheduler, by name."""

import difflib
import math
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from rlrun.errors import ConfigError
from rlrun.functional.schedules import linear

# Schedulers that take more than plain numbers: functions, other schedulers, losses.
UNFIT = {"LRScheduler", "LambdaLR", "MultiplicativeLR", "ChainedScheduler", "SequentialLR", "ReduceLROnPlateau"}
NAMES = sorted({"linear", *lr_scheduler.__all__} - UNFIT)


class Rewindable:
    """A module with state that a reset of the run starts over."""

    def rewind(self) -> None:
        """Back to the state at the start of a run."""
        raise NotImplementedError


class StartsFresh:
    """Marks a module whose state a run does not take over when it loads the weights of another run."""


class Schedule(Rewindable, nn.Module):
    """`{linear: {}}` falls to 0 with the run; `{ExponentialLR: {gamma: 0.9}}` is torch's, one step a call.

    Raises ConfigError for a name or setting that torch does not have.
    """

    def __init__(self, learning_rate: float, values: dict[str, Any]):
        super().__init__()
        if len(values) != 1:
            raise ConfigError(f"algo.lr_schedule: one schedule at a time, not {', '.join(values)}")
        ((name, settings),) = values.items()
        if name not in NAMES:
            what = "no such schedule"
            near = difflib.get_close_matches(str(name), NAMES, n=1)
            if name in UNFIT:
                what = "not supported, for it takes more than numbers"
            elif near:
                what += f"; did you mean {near[0]!r}?"
            raise ConfigError(f"algo.lr_schedule.{name}: {what} (known: {', '.join(NAMES)})")
        self.start, self.name, self.settings = learning_rate, name, settings
        try:
            self.rewind()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"algo.lr_schedule: {name}: {error}") from None

    def rewind(self) -> None:
        """Back to the start."""
        self.scheduler: Any = None
        if self.name != "linear":
            # torch moves the rates of an optimiser: here of one with nothing to optimise
            self.holder = torch.optim.SGD([nn.Parameter(torch.zeros(()))], self.start)
            self.scheduler = getattr(lr_scheduler, self.name)(self.holder, **self.settings)
        elif self.settings:
            raise TypeError(f"it takes no {min(self.settings)}")

    def forward(self, progress: float) -> float:
        """The learning rate of the epoch or update that begins; progress of the run: 0 to 1."""
        if self.scheduler is None:
            return linear(self.start, 0.0, progress)
        rate = float(self.holder.param_groups[0]["lr"])
        self.holder.step()
        if self.scheduler.last_epoch + 1 < getattr(self.scheduler, "total_steps", math.inf):  # then the last rate stays
            self.scheduler.step()
        return rate

    def get_extra_state(self) -> dict[str, Any]:
        """The numbers that change; everything else follows from the config."""
        if self.scheduler is None:
            return {}
        state = {key: value for key, value in self.scheduler.state_dict().items() if type(value) in (int, float)}
        return {"scheduler": state, "rate": float(self.holder.param_groups[0]["lr"])}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if self.scheduler is not None:
            self.scheduler.load_state_dict(self.scheduler.state_dict() | state["scheduler"])
            self.holder.param_groups[0]["lr"] = state["rate"]
