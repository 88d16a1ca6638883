"""Schedules of learning rates that are schedulers of torch.optim.lr_scheduler, chosen by name."""

import difflib
import math
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from rlrun.errors import ConfigError
from rlrun.schedules.shape import SHAPES
from rlrun.types import Context

# Schedulers that need arguments other than numbers: functions, other schedulers, losses.
UNFIT = {"LRScheduler", "LambdaLR", "MultiplicativeLR", "ChainedScheduler", "SequentialLR", "ReduceLROnPlateau"}
NAMES = sorted({*lr_scheduler.__all__} - UNFIT)
TRIED = 100  # learning rates that are computed before a run starts
ROUNDING = 1e-6  # error of torch's schedulers, which may give -1e-18 instead of 0, as a fraction of the first rate


class TorchSchedule(nn.Module):
    """A shape of schedules, `{ExponentialLR: {gamma: 0.9}}`: each update of the agent is one step of torch's scheduler.

    Raises ConfigError if torch has no scheduler of this name, or if it does not accept the settings.
    key: the key of the config that holds the schedule, for messages.
    """

    def __init__(self, start: float, name: str, settings: Any, key: str):
        super().__init__()
        if name not in NAMES:
            known = [*SHAPES, *NAMES]
            what = "no such schedule"
            near = difflib.get_close_matches(name, known, n=1)
            if name in UNFIT:
                what = "not supported, because it needs arguments other than numbers"
            elif near:
                what += f"; did you mean {near[0]!r}?"
            raise ConfigError(f"{key}.{name}: {what} (known: {', '.join(known)})")
        if not isinstance(settings, dict):
            raise ConfigError(f"{key}.{name}={settings}: must be a section, such as {{StepLR: {{step_size: 9}}}}")
        for setting, value in settings.items():
            if isinstance(value, int | float) and value < 0:
                raise ConfigError(f"{key}.{name}.{setting}={value}: must be at least 0")
        if isinstance(settings.get("gamma"), int):  # powers of whole numbers would grow without a limit
            settings = settings | {"gamma": float(settings["gamma"])}
        self.start, self.name, self.settings = start, name, settings
        try:
            self.begin()
            self.first_rates = [self.value_at(start, Context(updates, 0, 0.0)) for updates in range(TRIED)]
            self.begin()
        except (TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise ConfigError(f"{key}: {name}: {error}") from None

    def begin(self) -> None:
        """Builds torch's scheduler at its start. It may raise exceptions for settings that it does not take."""
        # torch's schedulers change the learning rate of an optimiser; this one has nothing else to do
        self.holder = torch.optim.SGD([nn.Parameter(torch.zeros(()))], self.start)
        self.scheduler: Any = getattr(lr_scheduler, self.name)(self.holder, **self.settings)

    def value_at(self, start: float, ctx: Context) -> float:
        """Returns the rate of an update. Called for all updates, in their order."""
        # OneCycleLR raises an error after `total_steps`; its last rate is kept
        last = getattr(self.scheduler, "total_steps", math.inf) - 1
        if self.scheduler.last_epoch < min(ctx.updates, last):
            self.holder.step()
            self.scheduler.step()
        rate = float(self.holder.param_groups[0]["lr"])
        if -ROUNDING * start <= rate < 0:
            return 0.0
        return rate

    def reached(self, start: float) -> list[float]:
        """Returns the rates of the first updates. Later ones are checked while the run trains."""
        return self.first_rates

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the numbers that change during a run; everything else follows from the config."""
        return {"scheduler": self._numbers(), "rate": float(self.holder.param_groups[0]["lr"])}

    def _numbers(self) -> dict[str, int | float]:
        return {key: value for key, value in self.scheduler.state_dict().items() if type(value) in (int, float)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the numbers. Snapshots may be untrusted: raises ValueError for other values, and what is a float now
        stays one."""
        numbers = {}
        for key, now in self._numbers().items():
            value = state["scheduler"].get(key, now)
            if type(value) not in (int, float):
                raise ValueError(f"{key} of {self.name} is no number")
            numbers[key] = float(value) if isinstance(now, float) else value
        self.scheduler.load_state_dict(self.scheduler.state_dict() | numbers)
        self.holder.param_groups[0]["lr"] = state["rate"]
