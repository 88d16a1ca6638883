"""Types and ranges of settings. Each part has a `Config` of its own; default values are in YAML only."""

import copy
import difflib
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError, core_schema

from rlrun.config.check import MOST_EPISODES
from rlrun.errors import ConfigError

T = TypeVar("T")

MOST_OBJECTS = 4096  # maximum number of environments with env.backend=sync or async
LONGEST_NAME = 255  # bytes, the limit of file systems
LONGEST_VALUE = 80  # letters of a value that a message shows
SETTINGS = pydantic.ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)  # of every Config


@dataclass_transform(kw_only_default=True, frozen_default=True)
def config(cls: type[T]) -> type[T]:
    """Class decorator that makes a frozen pydantic dataclass. Unknown keys and values of a wrong type are errors.

    Parts of rlrun have their values in YAML. Parts of a user may have defaults, which may be lists and dicts too.
    """
    for name, value in list(vars(cls).items()):
        is_setting = name in cls.__annotations__ and get_origin(cls.__annotations__[name]) is not ClassVar
        if is_setting and isinstance(value, list | dict):
            setattr(cls, name, field(default_factory=partial(copy.deepcopy, value)))
    made = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=SETTINGS)(cls)
    made.__setattr__ = refuse_assignment  # type: ignore[method-assign,assignment]  # dataclasses' own gives no advice
    return made  # type: ignore[return-value]


def refuse_assignment(self: object, name: str, value: object) -> None:
    """Raises FrozenInstanceError."""
    raise FrozenInstanceError(
        f"cfg.{name}={value}: a setting is constant in a run; declare it as Scheduled[...] in its Config and use "
        f"algo.schedule.{name}, or keep a number that changes in a buffer (self.register_buffer)"
    )


@cache
def constant(cls: type) -> type:
    """Returns a subclass of a dataclass whose fields cannot be assigned after `__init__`."""

    class Unassignable(cls):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any):
            self.__dict__.update(cls(*args, **kwargs).__dict__)

        __setattr__ = refuse_assignment

    Unassignable.__name__, Unassignable.__qualname__ = cls.__name__, cls.__qualname__
    return Unassignable


@config
class Discounted:
    """Hyperparameters of an algorithm with a discount per step."""

    gamma: "Fraction"


@config
class NStepReturns(Discounted):
    """Hyperparameters of an algorithm with n-step returns from replay: `n_step` rewards, discounted by gamma."""

    n_step: "PositiveInt"


def _whole(value: Any) -> Any:
    """Converts floats such as 1e6 to int. Other values are returned unchanged; strict validation refuses `true`, `"10"`
    and 1.5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _range(value: list[float]) -> list[float]:
    if len(value) != 2 or value[0] > value[1]:
        raise PydanticCustomError("range", "Input should be [low, high] with low at most high")
    return value


def _non_negative(value: float | list[float]) -> float | list[float]:
    numbers = value if isinstance(value, list) else [value]
    if any(number < 0 for number in numbers):
        raise PydanticCustomError("non_negative", "Input should be at least 0")
    return value


def _whole_range(value: Any) -> list[int]:
    """Returns [low, high] of whole numbers from 1 on. A single number is the range that holds only this number."""
    pair = value if isinstance(value, list) else [value, value]
    bounds = [_whole(bound) for bound in pair]
    is_valid = len(bounds) == 2 and all(type(bound) is int and bound >= 1 for bound in bounds)
    if not is_valid or bounds[0] > bounds[1]:
        text = "Input should be a whole number of at least 1, or [low, high] of such numbers with low at most high"
        raise PydanticCustomError("range", text)
    return bounds


def _name(value: str) -> str:
    if len(value.encode()) > LONGEST_NAME:
        raise PydanticCustomError("name", f"Input should be at most {LONGEST_NAME} bytes long, as it names a folder")
    return value


def _path(value: str) -> str:
    for part in value.split("/"):
        _name(part)
    return value


def _off(value: Any) -> Any:
    """Converts False to "off", because YAML reads a bare `off` as false."""
    return "off" if value is False else value


@dataclass(frozen=True)
class Part:
    """Marks a field of a Config as a registered part: `critic: Annotated[dict[str, Any], Part("critic")]`.

    The value of the field is the name of a part, or a section with `name` and the part's settings.
    """

    group: str  # group in the registry

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_before_validator_function(_part, handler(source))


def _part(value: Any) -> Any:
    part = {"name": value} if isinstance(value, str) else value
    if not isinstance(part, dict) or not isinstance(part.get("name"), str):
        raise PydanticCustomError("part", "Input should be the name of a part, or a section with its name")
    return part


@dataclass(frozen=True)
class ScheduledValue:
    """A number with a schedule: `start` is validated as the number, and a part of the agent gets `value`.

    value: a 0-d tensor, which changes during the run.
    """

    start: float
    value: Any


@dataclass(frozen=True)
class MayChange:
    """Marks a field of a Config as a number that `algo.schedule` may change during a run."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_wrap_validator_function(_scheduled, handler(source))


def _scheduled(value: Any, validate: Any) -> Any:
    if isinstance(value, ScheduledValue):
        validate(value.start)
        return value.value
    return validate(value)


N = TypeVar("N")
Scheduled = Annotated[N, MayChange()]  # `gae_lambda: Scheduled[Fraction]`


@cache
def scheduled_of(cls: type) -> list[str]:
    """Returns the fields of a Config that may be scheduled."""
    hints = get_type_hints(cls, include_extras=True)
    return [name for name, hint in hints.items() if any(_marks(hint, MayChange))]


@cache
def _type_of(cls: type, field: str) -> pydantic.TypeAdapter[Any]:
    hint = get_type_hints(cls, include_extras=True)[field]
    return pydantic.TypeAdapter(hint, config=SETTINGS)


def number_fault(cls: type, field: str, number: float) -> str | None:
    """Returns why a field of a Config cannot have this number, such as "must be greater than 0", or None."""
    try:
        _type_of(cls, field).validate_python(number)
    except pydantic.ValidationError as error:
        return error.errors()[0]["msg"].replace("Input should", "must")
    return None


@cache
def parts_of(cls: type) -> dict[str, str]:
    """Returns the fields of a Config that are parts, each with its group in the registry."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: mark.group for name, hint in hints.items() for mark in _marks(hint, Part)}


def _marks(hint: Any, kind: type[T]) -> Iterator[T]:
    """Yields the marks of one kind in an annotation, at any depth, as in `Annotated[...] | None`."""
    yield from (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, kind))
    for inner in get_args(hint):
        yield from _marks(inner, kind)


Int = Annotated[int, BeforeValidator(_whole)]
PositiveInt = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
NonNegativeInt = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Size = Annotated[PositiveInt, Field(le=2**24)]  # number of rows that are in memory at the same time
Units = Annotated[PositiveInt, Field(le=2**14)]  # number of units of a layer, of networks, atoms or simulations
Episodes = Annotated[NonNegativeInt, Field(le=MOST_EPISODES)]  # number of episodes of one evaluation
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PerDimension = float | list[float]  # one number, or one for each dimension of the action
NonNegativePerDimension = Annotated[PerDimension, AfterValidator(_non_negative)]
Range = Annotated[list[float], AfterValidator(_range)]
IntRange = Annotated[list[int], BeforeValidator(_whole_range)]  # [low, high]; may be given as one number
OpenFraction = Annotated[float, Field(gt=0, lt=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]


@config
class NormalizeConfig:
    """The section `env.normalize`."""

    kind: Literal["none", "obs", "reward", "both"]
    clip_obs: PositiveFloat | None
    clip_reward: PositiveFloat | None
    reward_by: Literal["returns", "rewards"]
    epsilon: PositiveFloat
    gamma: Fraction | None


@config
class EnvConfig:
    """The section `env`."""

    id: str
    num_envs: Annotated[PositiveInt, Field(le=2**20)]  # the bound is beyond what any machine can step
    backend: Literal["sync", "async", "native", "torch", "envpool", "jax"]
    kwargs: dict[str, Any]
    task_kwargs: dict[str, Range]  # kwargs that each environment draws from [low, high]
    eval_kwargs: dict[str, Any]  # override `kwargs` in evaluations
    wrappers: dict[str, dict[str, Any]]  # registered name -> settings, innermost first
    normalize: NormalizeConfig
    max_episode_steps: PositiveInt | None
    instance_seed: NonNegativeInt | None
    timeout_s: PositiveFloat
    on_failure: Literal["raise", "restart"]
    action_mask: bool
    selftest: Annotated[Literal["auto", "full", "off"], BeforeValidator(_off)]
    log_info: list[str]  # entries of infos that are logged as metrics
    schedule: dict[str, dict[str, Any]]  # attribute of the environment -> settings of schedules/curriculum.py


METRIC_GROUPS = ("train", "eval", "loss", "custom")  # first part of the metrics that a run may wait for


def _metric(value: str) -> str:
    if value.partition("/")[0] not in METRIC_GROUPS or value.endswith("/") or "/" not in value:
        groups = ", ".join(f"{group}/..." for group in METRIC_GROUPS)
        raise PydanticCustomError("metric", f"Input should be a metric of log rows: {groups}")
    return value


Metric = Annotated[str, AfterValidator(_metric)]


@config
class StopWhenConfig:
    """The section `trainer.stop_when`."""

    metric: Metric
    at_least: float | None
    at_most: float | None
    times: PositiveInt
    plateau: PositiveInt | None
    hours: PositiveFloat | None

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.at_least, self.at_most) if limit is not None]
        if self.metric.endswith("/success_rate") and any(not 0 <= limit <= 1 for limit in limits):
            raise PydanticCustomError("success_rate", "Input should have limits from 0 to 1, as a success rate has")


@config
class TrainerConfig:
    """The section `trainer`."""

    total_steps: PositiveInt
    stop_at: PositiveInt | None
    stop_when: StopWhenConfig
    eval_every: NonNegativeInt
    eval_episodes: Episodes
    eval_max_steps: PositiveInt
    log_every: PositiveInt
    snapshot_every: NonNegativeInt | None
    snapshot_keep: PositiveInt
    snapshot_archive_every: NonNegativeInt
    snapshot_replay: bool
    snapshot_on_failure: Literal["continue", "stop"]
    engine: Literal["auto", "eager", "compile", "cudagraph"]
    precision: Literal["fp32", "tf32", "bf16"]
    threads: PositiveInt | None


@config
class RunConfig:
    """The config of a run. `algo`, `network` and `logger` are untyped here; the registry checks them when it builds the
    parts."""

    seed: Annotated[NonNegativeInt, Field(lt=2**63)]
    device: str
    name: Annotated[str, AfterValidator(_name)]
    run_dir: Annotated[str, AfterValidator(_path)] | None
    preset: str | None
    plugins: list[str]
    init_from: str | dict[str, str] | None  # a source for the whole agent, or one for each of its parts
    init_modules: list[str]
    init_exploration: Literal["keep", "fresh"]
    resume: Literal["never", "auto"]
    algo: dict[str, Any]
    network: dict[str, Any]
    env: EnvConfig
    trainer: TrainerConfig
    logger: dict[str, dict[str, Any]]  # registered name -> settings
    callbacks: list[Annotated[dict[str, Any], Part("callback")]]


def parse(cls: type[T], values: dict[str, Any], path: str) -> T:
    """Builds `cls` from plain values, and its sections that have a Config of their own.

    Raises ConfigError with one line per fault, each with its dotted key.
    """
    made: type[T] = cls
    # a dataclass of a user without @config; one with slots stays as it is
    if not cls.__dataclass_params__.frozen and not hasattr(cls, "__slots__"):  # type: ignore[attr-defined]
        made = constant(cls)  # type: ignore[arg-type]
    values = dict(values)
    faults: list[str] = []
    for name, section in _sections_of(cls).items():  # type: ignore[arg-type]
        if isinstance(values.get(name), dict):
            try:
                values[name] = parse(section, values[name], f"{path}.{name}".lstrip("."))
            except ConfigError as error:
                faults += error.faults
                values[name] = object.__new__(section)  # a placeholder, so that the other settings are checked too
    try:
        built = made(**values)
    except pydantic.ValidationError as error:
        lines: dict[str, str] = {}  # a union like `int | None` gives a fault for each member; the first is enough
        for fault in error.errors():
            where = _where(path, fault["loc"], values)
            lines.setdefault(where, _explain(where, fault, cls))
        raise ConfigError(*faults, *lines.values()) from None
    if faults:
        raise ConfigError(*faults)
    return built


@cache
def _sections_of(cls: type) -> dict[str, type]:
    """Returns the fields of a Config whose type is a Config too."""
    return {name: hint for name, hint in get_type_hints(cls).items() if is_dataclass(hint) and isinstance(hint, type)}


def run_config(values: dict[str, Any]) -> RunConfig:
    """Returns the typed form of a composed config. Raises one ConfigError with the faults of all sections."""
    values = dict(values)
    faults: list[str] = []
    for key, section in {"env": EnvConfig, "trainer": TrainerConfig}.items():
        try:
            values[key] = parse(section, _section(values, key), key)
        except ConfigError as error:
            faults += error.faults
            values[key] = object.__new__(section)  # a placeholder, so that the other settings are checked too
        else:
            faults += _too_many(values[key]) if key == "env" else ()
    try:
        config = parse(RunConfig, values, "")
    except ConfigError as error:
        faults += error.faults
    if faults:
        raise ConfigError(*faults)
    return config


def _section(values: dict[str, Any], key: str) -> dict[str, Any]:
    """Returns the values of a section. Raises ConfigError if it is missing or not a mapping."""
    if key not in values:
        raise ConfigError(f"{key}: missing")
    if not isinstance(values[key], dict):
        raise ConfigError(f"{key}={values[key]!r}: must be a section")
    return values[key]


def _too_many(env: EnvConfig) -> list[str]:
    """Returns a fault if there are too many environments for a backend that has one object or process for each."""
    if env.backend not in ("sync", "async") or env.num_envs <= MOST_OBJECTS:
        return []
    line = f"env.num_envs={env.num_envs}: must be at most {MOST_OBJECTS} with env.backend={env.backend}"
    return [f"{line}; native, torch, envpool and jax allow more"]


def _where(path: str, location: tuple[int | str, ...], values: dict[str, Any]) -> str:
    """Returns the dotted key of a fault, from pydantic's location.

    A location may contain labels that are not keys, such as the type in a union. They are left out.
    """
    keys = [path, *map(str, location[:1])]
    found: Any = values.get(str(location[0])) if location else None
    for part in location[1:]:
        try:
            found = found[part]
        except (TypeError, KeyError, IndexError):
            continue
        keys.append(str(part))
    return ".".join(keys).strip(".")


def _explain(where: str, fault: Any, cls: type) -> str:
    if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        group, _, key = where.rpartition(".")
        near = difflib.get_close_matches(key, [field.name for field in fields(cls)], n=1)  # type: ignore[arg-type]
        hint = f"; did you mean {group}.{near[0]}?" if near else ""
        return f"{where}: unknown key{hint}"
    if fault["type"].startswith("missing"):
        return f"{where}: missing"
    said = fault["msg"].replace("Input should", "must")
    if not fault["loc"]:  # the fault of a whole section
        return f"{where}: {said}"
    value = repr(fault["input"])
    shown = value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 3]}..."
    return f"{where}={shown}: {said}"
