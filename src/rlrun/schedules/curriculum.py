"""Environment parameters that change during a run (`env.schedule`): curricula by step, by progress or by success."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from rlrun.errors import ConfigError
from rlrun.module import Module
from rlrun.schedules.shape import linear, stage
from rlrun.settings import PositiveInt, config, parse
from rlrun.types import Episode

RESOLUTION = 100  # values between two points of a linear schedule, so that environments rarely get a new one
MOST_RESULTS = 1_000_000  # episodes in a mean


def listed(value: Any) -> Any:
    """Returns one number as a list. Other values are returned unchanged."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value]
    return value


@config
class ParameterSchedule:
    """The settings of one parameter, `env.schedule.<attribute>`."""

    by: Literal["steps", "progress", "success", "return"]
    values: Annotated[list[float], Field(min_length=2)]
    # steps or progress at which each value begins, or one number: the mean that leads to the next value
    at: Annotated[list[float], BeforeValidator(listed)]
    linear: bool = False  # interpolate between the values
    # by success and return: number of latest episodes in the mean
    episodes: Annotated[PositiveInt, Field(le=MOST_RESULTS)] = 100


class Parameter:
    """A scheduled parameter. `observe` receives the results of episodes, `value` returns the current value."""

    def __init__(self, name: str, cfg: ParameterSchedule):
        self.name, self.cfg = name, cfg
        self.stage = 0  # index of the current value; only with `by_results`
        self.results: deque[float] = deque(maxlen=cfg.episodes)  # results of the episodes in this stage
        self.check(f"env.schedule.{name}")

    def check(self, key: str) -> None:
        """Raises ConfigError if the settings do not fit together."""
        cfg = self.cfg
        points = cfg.at
        if self.by_results:
            if len(points) != 1 or cfg.linear:
                raise ConfigError(
                    f"{key}: by={cfg.by} needs one number at=..., the mean of the next stage, and no linear"
                )
            if cfg.by == "success" and not 0 <= points[0] <= 1:
                raise ConfigError(f"{key}.at={points[0]:g}: a success rate is from 0 to 1")
        elif len(points) != len(cfg.values) or sorted({*points}) != points:
            raise ConfigError(f"{key}.at={points}: must be {len(cfg.values)} increasing numbers, one for each value")
        elif cfg.by == "progress" and not 0 <= points[0] <= points[-1] <= 1:
            raise ConfigError(f"{key}.at={points}: progress is from 0 to 1")
        elif points[0] < 0:
            raise ConfigError(f"{key}.at={points}: steps are from 0 on")

    @property
    def by_results(self) -> bool:
        """Whether the results of episodes lead to the next value."""
        return self.cfg.by in ("success", "return")

    def samples(self) -> tuple[float, float, float]:
        """Returns values to try: the smallest, the largest, and one that is not whole if the parameter has one."""
        values = [*self.cfg.values]
        if self.cfg.linear:
            values += [one + (other - one) / RESOLUTION for one, other in pairwise(self.cfg.values)]
        fractional = next((value for value in values if not value.is_integer()), values[0])
        return min(values), max(values), fractional

    def observe(self, result: float) -> None:
        """Counts the result of an ended episode. The next stage begins if the mean of enough episodes is reached."""
        self.results.append(result)
        is_full = len(self.results) == self.results.maxlen
        if is_full and np.mean(self.results) >= self.cfg.at[0] and self.stage + 1 < len(self.cfg.values):
            self.stage += 1
            self.results.clear()

    def value(self, steps: int, progress: float) -> float:
        """Returns the value at a point of the run."""
        cfg = self.cfg
        if self.by_results:
            return cfg.values[self.stage]
        now = {"steps": steps, "progress": progress}[cfg.by]
        reached, share = stage(cfg.at, now)
        value = cfg.values[max(0, reached - 1)]
        if not cfg.linear or not share:
            return value
        share = round(share * RESOLUTION) / RESOLUTION
        return linear(value, cfg.values[reached], share)


class Curriculum(Module):
    """All scheduled parameters of the training environments.

    An environment takes a new value when its next episode begins, so a value is constant during an episode.
    """

    def __init__(self, schedules: Mapping[str, Mapping[str, Any]]):
        super().__init__()
        self.scheduled: list[Parameter] = []
        for name, values in by_attribute(schedules):
            self.scheduled.append(Parameter(name, parse(ParameterSchedule, values, f"env.schedule.{name}")))

    def observe(self, episodes: Iterable[Episode]) -> None:
        """Counts the training episodes that ended in a step. One whose last step reported no success has success 0."""
        results: dict[str, list[Any]] = {
            "return": [episode.returned for episode in episodes],
            "success": [episode.success or 0.0 for episode in episodes],
        }
        for parameter in self.scheduled:
            for result in results.get(parameter.cfg.by, ()):
                parameter.observe(float(result))

    def last_points(self) -> Iterator[tuple[str, int]]:
        """Yields (setting, step of the last value) of each schedule by steps."""
        for parameter in self.scheduled:
            if parameter.cfg.by == "steps":
                yield f"env.schedule.{parameter.name}", int(parameter.cfg.at[-1])

    def values(self, steps: int, progress: float) -> dict[str, float]:
        """Returns the value of every parameter for episodes that begin now."""
        return {parameter.name: parameter.value(steps, progress) for parameter in self.scheduled}

    def samples(self) -> list[dict[str, float]]:
        """Returns three sets of values, by name, to try in an environment before a run: see `Parameter.samples`."""
        names = [parameter.name for parameter in self.scheduled]
        samples = [parameter.samples() for parameter in self.scheduled]
        return [dict(zip(names, values, strict=True)) for values in zip(*samples, strict=True)]

    def get_extra_state(self) -> dict[str, Any]:
        return {
            parameter.name: {"stage": parameter.stage, "results": [*parameter.results]} for parameter in self.scheduled
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for parameter in self.scheduled:
            saved = state[parameter.name]
            parameter.stage = int(saved["stage"])
            parameter.results.clear()
            parameter.results.extend(float(result) for result in saved["results"])


def by_attribute(schedules: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the dotted name of each attribute with its settings. Nested sections are attributes of attributes."""
    for name, values in schedules.items():
        holds_sections = isinstance(values, Mapping) and all(isinstance(one, Mapping) for one in values.values())
        if values and holds_sections:
            yield from by_attribute(values, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", dict(values)
