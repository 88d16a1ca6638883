"""Learning rate schedules: linear over the run, or a scheduler of torch.optim.lr_scheduler, chosen by name."""

import difflib
import math
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from rlrun.errors import ConfigError, RunError
from rlrun.schedules.shape import linear

# Schedulers that need arguments other than numbers: functions, other schedulers, losses.
UNFIT = {"LRScheduler", "LambdaLR", "MultiplicativeLR", "ChainedScheduler", "SequentialLR", "ReduceLROnPlateau"}
NAMES = sorted({"linear", *lr_scheduler.__all__} - UNFIT)
LARGEST = torch.finfo(torch.float32).max
TRIED = 100  # learning rates that are computed before a run starts
ROUNDING = 1e-6  # error of torch's schedulers, which may give -1e-18 instead of 0, as a fraction of the first rate


class Schedule(nn.Module):
    """`{linear: {}}` falls to 0 over the run. `{ExponentialLR: {gamma: 0.9}}` is torch's scheduler, and each call is
    one step of it.

    Raises ConfigError if torch has no scheduler of this name, it does not accept the settings, or one of the first
    learning rates is negative or too large.
    key: the key of the config that holds `values`, for messages.
    """

    def __init__(self, learning_rate: float, values: dict[str, Any], key: str = "algo.lr_schedule"):
        super().__init__()
        if len(values) != 1:
            raise ConfigError(f"{key}: one schedule at a time, not {', '.join(values)}")
        ((name, settings),) = values.items()
        if name not in NAMES:
            what = "no such schedule"
            near = difflib.get_close_matches(str(name), NAMES, n=1)
            if name in UNFIT:
                what = "not supported, because it needs arguments other than numbers"
            elif near:
                what += f"; did you mean {near[0]!r}?"
            raise ConfigError(f"{key}.{name}: {what} (known: {', '.join(NAMES)})")
        self.start, self.name, self.settings, self.key = learning_rate, name, settings, key
        for setting, value in settings.items():
            if isinstance(value, int | float) and value < 0:
                raise ConfigError(f"{key}.{name}.{setting}={value}: must be at least 0")
        try:
            self.begin()
            for _ in range(TRIED):
                self(0.0)
            self.begin()
        except RunError as error:
            raise ConfigError(str(error)) from None
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ConfigError(f"{key}: {name}: {error}") from None

    def begin(self) -> None:
        """Builds torch's scheduler at its start. Raises TypeError for settings that it does not take."""
        self.scheduler: Any = None
        if self.name != "linear":
            # torch's schedulers change the learning rate of an optimiser; this one has nothing else to do
            self.holder = torch.optim.SGD([nn.Parameter(torch.zeros(()))], self.start)
            self.scheduler = getattr(lr_scheduler, self.name)(self.holder, **self.settings)
        elif self.settings:
            raise TypeError(f"it takes no {min(self.settings)}")

    def forward(self, progress: float) -> float:
        """Returns the learning rate for the next epoch or update. progress: of the run, from 0 to 1.

        Raises RunError if it is negative or too large."""
        if self.scheduler is None:
            return linear(self.start, 0.0, progress)
        rate = float(self.holder.param_groups[0]["lr"])
        if not -ROUNDING * self.start <= rate <= LARGEST:
            raise RunError(f"{self.key}: {self.name} reaches {rate:g}, but a learning rate is from 0 to {LARGEST:.2g}")
        self.holder.step()
        # after `total_steps` the last rate is kept, because OneCycleLR raises an error beyond
        if self.scheduler.last_epoch + 1 < getattr(self.scheduler, "total_steps", math.inf):
            self.scheduler.step()
        return rate

    @property
    def ends_at_zero(self) -> bool:
        """Whether the learning rate is 0 at the end of the run, or, with a scheduler of torch, is 0 now."""
        return self.scheduler is None or float(self.holder.param_groups[0]["lr"]) == 0

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the numbers that change during a run; everything else follows from the config."""
        if self.scheduler is None:
            return {}
        state = {key: value for key, value in self.scheduler.state_dict().items() if type(value) in (int, float)}
        return {"scheduler": state, "rate": float(self.holder.param_groups[0]["lr"])}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if self.scheduler is not None:
            self.scheduler.load_state_dict(self.scheduler.state_dict() | state["scheduler"])
            self.holder.param_groups[0]["lr"] = state["rate"]
