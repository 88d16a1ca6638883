"""Settings of a sweep, from `conf/sweep.yaml` and the command line."""

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from rlrun.config import check, sources
from rlrun.config.schema import (
    Fraction,
    Metric,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    config,
    parse,
)
from rlrun.errors import ConfigError

FILE = sources.CONF / "sweep.yaml"
MOST_TRIALS = 100_000
BYTES = TypeAdapter(ByteSize)
FREE = ("workers", "hours", "disk")  # settings in which two drivers of one sweep may differ


def _rungs(value: list[float]) -> list[float]:
    if not value or value[-1] != 1 or any(later <= earlier for earlier, later in pairwise(value)):
        raise PydanticCustomError("rungs", "Input should be a list of rising fractions that ends with 1")
    return value


def _bounds(value: list[float]) -> list[float]:
    if len(value) != 2 or not value[0] < value[1]:
        raise PydanticCustomError("bounds", "Input should be two rising numbers")
    return value


def _bytes(value: Any) -> int:
    """Returns a size in bytes as a plain int, which YAML can hold."""
    try:
        return int(BYTES.validate_python(value))
    except ValidationError:
        raise PydanticCustomError("size", "Input should be a size, like 500M or 20G") from None


@config
class SweepConfig:
    """All settings of a sweep."""

    name: str | None
    kind: Literal["search", "pbt"]
    space: str | None
    trials: Annotated[PositiveInt, Field(le=MOST_TRIALS)]
    seeds: Annotated[PositiveInt, Field(le=1000)]  # the next seeds measure the best trials again
    workers: PositiveInt
    hours: PositiveFloat | None
    disk: Annotated[int, BeforeValidator(_bytes)] | None
    seed: NonNegativeInt
    search: Literal["random", "sobol", "grid", "tpe", "gp", "cmaes", "nsga2"]
    prune: Literal["none", "asha", "median"]
    rungs: Annotated[list[PositiveFraction], AfterValidator(_rungs)]
    eta: Annotated[PositiveInt, Field(ge=2)]
    every: PositiveInt | None
    exploit: Annotated[float, Field(gt=0, le=0.5)]
    perturb: Annotated[list[PositiveFloat], Field(min_length=1)]
    resample: Fraction
    order: Literal["free", "generation"]
    generation: PositiveInt
    metric: Metric
    score: Literal["last", "mean", "speed"]
    target: float | None
    normalize: dict[str, Annotated[list[float], AfterValidator(_bounds)]]
    cost: NonNegativeFloat
    winners: NonNegativeInt
    fresh_seeds: PositiveInt


def defaults() -> dict[str, Any]:
    """Returns the settings of `conf/sweep.yaml`."""
    found: dict[str, Any] = sources.content(FILE)
    return found


def settings(values: dict[str, Any]) -> SweepConfig:
    """Returns the settings with those of `values` applied. Raises ConfigError with a line for each fault."""
    known = defaults()
    faults: list[str] = []
    for key, value in values.items():
        section, _, inner = key.partition(".")
        if inner and isinstance(known.get(section), dict):  # normalize.<env>
            known[section] = {**known[section], inner: value}
            continue
        faults += check.faults(key, value, known)
        known[key] = check.fitted(value, known.get(key))
    if known["kind"] == "pbt":
        if values.get("seeds", 1) != 1:
            faults.append(f"seeds={values['seeds']}: kind=pbt trains one run for each trial")
        known["seeds"] = 1
    if faults:
        raise ConfigError(*faults)
    return parse(SweepConfig, known, "")
