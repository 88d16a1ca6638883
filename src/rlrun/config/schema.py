"""The config of a run, as typed settings."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from rlrun.envs.config import EnvConfig, too_many
from rlrun.errors import ConfigError
from rlrun.settings import Episodes, Fraction, NonNegativeInt, Part, PositiveFloat, PositiveInt, Units, config, parse

LONGEST_NAME = 255  # bytes, the limit of file systems
METRIC_GROUPS = ("train", "eval", "loss", "custom")  # first part of the metrics that a run may wait for


def _name(value: str) -> str:
    if len(value.encode()) > LONGEST_NAME:
        raise PydanticCustomError("name", f"Input should be at most {LONGEST_NAME} bytes long, as it names a folder")
    return value


def _path(value: str) -> str:
    for part in value.split("/"):
        _name(part)
    return value


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
    total_updates: PositiveInt | None
    stop_at: PositiveInt | None
    stop_when: StopWhenConfig
    period_unit: Literal["steps", "updates", "episodes"]
    eval_every: NonNegativeInt
    num_evals: PositiveInt | None
    eval_episodes: Episodes
    eval_max_steps: PositiveInt
    eval_envs: Units | None
    eval_sampled: Fraction
    eval_beside: bool
    log_every: PositiveInt
    num_rows: PositiveInt | None
    min_episodes: PositiveInt
    measure_after: NonNegativeInt
    snapshot_every: NonNegativeInt | None
    num_snapshots: PositiveInt | None
    snapshot_keep: PositiveInt
    snapshot_archive_every: NonNegativeInt
    snapshot_replay: bool
    snapshot_on_failure: Literal["continue", "stop"]
    snapshot_at_crash: Literal["never", "ask", "always"]
    engine: Literal["auto", "eager", "compile", "cudagraph"]
    precision: Literal["fp32", "tf32", "bf16"]
    threads: PositiveInt | None

    def contradictions(self) -> list[str]:
        """Returns a line for each two settings that exclude each other."""
        found = []
        if self.num_snapshots is not None and self.snapshot_every is None:
            found.append(
                f"trainer.num_snapshots={self.num_snapshots}: contradicts trainer.snapshot_every=null, no snapshots"
            )
        if self.num_evals is not None and not self.eval_episodes:
            found.append(f"trainer.num_evals={self.num_evals}: contradicts trainer.eval_episodes=0, no evaluations")
        return found

    @property
    def evaluates_during(self) -> bool:
        """Whether the run is evaluated before its end."""
        return self.eval_episodes > 0 and (self.eval_every > 0 or self.num_evals is not None)


@config
class RunConfig:
    """The config of a run.

    `algo`, `network`, `logger` and `cluster` are untyped here; the registry checks them when it builds the parts.
    """

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
    cluster: dict[str, object]
    callbacks: list[Annotated[dict[str, Any], Part("callback")]]


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
            if key == "env":
                faults += too_many(values[key])
            else:
                faults += values[key].contradictions()
    try:
        config = parse(RunConfig, values, "")
    except ConfigError as error:
        faults += error.faults
    if faults:
        raise ConfigError(*faults)
    return config


def _section(values: dict[str, Any], key: str) -> dict[str, object]:
    """Returns the values of a section. Raises ConfigError if it is missing or not a mapping."""
    if key not in values:
        raise ConfigError(f"{key}: missing")
    if not isinstance(values[key], dict):
        raise ConfigError(f"{key}={values[key]!r}: must be a section")
    return values[key]
