"""Settings of a sweep, from `conf/sweep.yaml`, its parts in `conf/sweep/`, and the command line."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from rlrun import dotted
from rlrun.config import check, parts, sources
from rlrun.config.schema import Metric
from rlrun.errors import ConfigError
from rlrun.formats.numbers import HUGE
from rlrun.settings import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    config,
    parse,
)

FILE = sources.CONF / "sweep.yaml"
MOST_TRIALS = 100_000
MOST_RUNS = 100_000  # of a search, counted with one seed for each trial; also of all runs on fresh seeds
MOST_ENVS = 100  # of a sweep; Atari has 57
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


def _factors(value: list[float]) -> list[float]:
    if not value or max(value) > HUGE:  # odds times a larger factor are infinite
        raise PydanticCustomError("factors", f"Input should be a list of positive numbers up to {HUGE:g}")
    return value


def _bytes(value: object) -> int:
    """Returns a size in bytes as a plain int, which YAML can hold."""
    try:
        size = int(BYTES.validate_python(value))
    except ValidationError:
        size = 0
    if size > 0 and not isinstance(value, bool):
        return size
    raise PydanticCustomError("size", "Input should be a size, like 500M or 20G")


@config
class SweepPart:
    """A part of a sweep, which may have settings of its own."""

    name: str


@config
class PbtConfig(SweepPart):
    """Settings of population-based training."""

    every: PositiveInt | None
    exploit: Annotated[float, Field(gt=0, le=0.5)]
    perturb: Annotated[list[PositiveFloat], AfterValidator(_factors)]
    resample: Fraction


@config
class AshaConfig(SweepPart):
    """Settings of asynchronous successive halving."""

    eta: Annotated[PositiveInt, Field(ge=2)]


@config
class GenerationConfig(SweepPart):
    """Settings of a search by generations."""

    size: PositiveInt


@config
class SpeedConfig(SweepPart):
    """Settings of a score that rewards reaching a target early."""

    target: float


# class of each part that has settings of its own
PARTS: dict[str, dict[str, type[SweepPart]]] = {
    "kind": {"pbt": PbtConfig},
    "prune": {"asha": AshaConfig},
    "order": {"generation": GenerationConfig},
    "score": {"speed": SpeedConfig},
}


@config
class SweepConfig:
    """All settings of a sweep."""

    name: str | None
    kind: SweepPart
    space: str | None
    trials: Annotated[PositiveInt, Field(le=MOST_TRIALS)]
    seeds: Annotated[PositiveInt, Field(le=1000)]  # below FRESH, the first fresh seed
    workers: Annotated[PositiveInt, Field(le=100_000)]
    hours: PositiveFloat | None
    disk: Annotated[int, BeforeValidator(_bytes)] | None
    seed: NonNegativeInt
    search: Literal["random", "sobol", "grid", "tpe", "gp", "cmaes", "nsga2"]
    prune: SweepPart
    rungs: Annotated[list[PositiveFraction], AfterValidator(_rungs)]
    order: SweepPart
    metric: Metric
    score: SweepPart
    normalize: dict[str, Annotated[list[float], AfterValidator(_bounds)]]
    cost: NonNegativeFloat
    winners: NonNegativeInt
    fresh_seeds: Annotated[PositiveInt, Field(le=1000)]


def check_size(cfg: SweepConfig, envs: int) -> None:
    """Raises ConfigError if a sweep has so many environments or runs that reading it takes long. envs: number of
    environments."""
    if envs > MOST_ENVS:
        raise ConfigError(f"env: {envs:,} environments; the limit is {MOST_ENVS:,}")
    again = min(cfg.winners, cfg.trials) * cfg.fresh_seeds
    for name, runs in (("trials", cfg.trials * envs), ("winners", again * envs)):
        if runs > MOST_RUNS:
            raise ConfigError(f"{name}={getattr(cfg, name)}: would be {runs:,} runs; the limit is {MOST_RUNS:,}")


def defaults() -> dict[str, Any]:
    """Returns the settings of `conf/sweep.yaml`, without those of its parts."""
    found: dict[str, Any] = sources.content(FILE)
    return found


def group(part: str) -> str:
    """Returns the config group of a part."""
    return f"sweep.{part}"


def meanings() -> dict[str, tuple[Any, str]]:
    """Returns default and comment of each setting by dotted key. The settings of a part's choices follow it."""
    found = {}
    known = defaults()
    for key, meaning in sources.notes(FILE).meanings.items():
        found[key] = known[key], meaning
        if key in PARTS:
            for name, file in sources.options(group(key), [sources.CONF]).items():
                values = sources.content(file)
                for inner, text in sources.notes(file).meanings.items():
                    found[f"{key}.{inner}"] = values[inner], f"{key}={name}: {text}"
    return found


def typed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a stored sweep that differ from their defaults, by dotted key."""
    found: dict[str, Any] = {}
    for key, default in defaults().items():
        if key not in PARTS:
            given = {key: stored[key]}
            known = {key: default}
        else:
            name = stored[key]["name"]
            given = {key: name} | {f"{key}.{inner}": value for inner, value in stored[key].items() if inner != "name"}
            known = {f"{key}.{inner}": value for inner, value in parts.settings(group(key), key, name).items()}
            known[key] = default
        found |= {one: value for one, value in given.items() if value != known[one]}
    return found


def settings(values: Mapping[str, Any]) -> SweepConfig:
    """Returns the default settings changed by `values`, dotted keys as typed or the sections of a stored sweep.

    Raises ConfigError with a line for each fault.
    """
    given = dict(values)
    known = defaults()
    for part in PARTS:
        chosen = given.pop(part, known[part])
        if isinstance(chosen, dict):  # as in a stored sweep
            chosen = dict(chosen)
            given |= {f"{part}.{key}": value for key, value in chosen.items() if key != "name"}
            chosen = chosen.get("name")
        known[part] = {"name": chosen, **parts.settings(group(part), part, chosen)}
    owners = {key: text.partition(":")[0] for key, (_, text) in meanings().items() if key.partition(".")[0] in PARTS}
    faults = []
    for key in [*given]:
        if key in owners and dotted.lookup(key, known) is dotted.ABSENT:
            faults.append(f"{key}: belongs to {owners[key]}")
            del given[key]
    faults += parts.apply(given, known)
    if known["kind"]["name"] == "pbt":
        if given.get("seeds", 1) != 1:
            faults.append(f"seeds={given['seeds']}: kind=pbt trains one run for each trial")
        known["seeds"] = 1
    faults += check.missing(known)
    if faults:
        raise ConfigError(*faults)
    for part, classes in PARTS.items():
        known[part] = parse(classes.get(known[part]["name"], SweepPart), known[part], part)
    return parse(SweepConfig, known, "")
