"""The section `env` of a config."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from rlrun.settings import Fraction, NonNegativeFloat, NonNegativeInt, Part, PositiveFloat, PositiveInt, Range, config

OBJECT = "object/"  # prefix of the ids of environments that a Python program passes as an object
PLAYGROUND = "playground/"  # prefix of the ids of MuJoCo Playground
MOST_OBJECTS = 4096  # maximum number of environments with a backend of `SINGLE`
SINGLE = ("sync", "async", "ray")  # backends that step single environments


def _off(value: object) -> object:
    """Converts False to "off", because YAML reads a bare `off` as false."""
    return "off" if value is False else value


def _id(value: str) -> str:
    if value.startswith(":"):
        raise PydanticCustomError("id", "Input should be an id, like Name-v1 or module:Name-v1")
    return value


@config
class NormalizeConfig:
    """The section `env.normalize`."""

    kind: Literal["none", "obs", "reward", "both"]
    clip_obs: PositiveFloat | None
    clip_reward: PositiveFloat | None
    reward_by: Literal["returns", "rewards"]
    epsilon: PositiveFloat
    gamma: Fraction | None
    statistics: Annotated[dict[str, object], Part("statistics")]
    fields: list[str]  # dotted paths of entries of observations; []: all that can be normalised
    zero_mean: bool
    update_on: Literal["rollout", "replay", "pretrain"]
    max_updates: PositiveInt | None


@config
class RayEnvConfig:
    """The section `env.ray`."""

    address: Annotated[str, Field(min_length=1)]
    workers: PositiveInt | None
    cpus: NonNegativeFloat


@config
class EnvConfig:
    """The section `env`."""

    id: Annotated[str, AfterValidator(_id)]
    num_envs: Annotated[PositiveInt, Field(le=2**20)]  # the bound is beyond what any machine can step
    backend: Literal["sync", "async", "ray", "native", "torch", "envpool", "jax"]
    ray: RayEnvConfig
    kwargs: dict[str, object]
    task_kwargs: dict[str, Range]  # kwargs that each environment draws from [low, high]
    index_kwarg: str | None  # of the kwargs, the one that is the index of each environment
    eval_kwargs: dict[str, object]  # override `kwargs` in evaluations
    wrappers: dict[str, dict[str, Any]]  # registered name -> settings, innermost first
    normalize: NormalizeConfig
    transforms: list[Annotated[dict[str, object], Part("transform")]]
    max_episode_steps: PositiveInt | None
    instance_seed: NonNegativeInt | None
    timeout_s: PositiveFloat
    on_failure: Literal["raise", "restart"]
    action_mask: bool
    selftest: Annotated[Literal["auto", "full", "off"], BeforeValidator(_off)]
    log_info: list[str]  # entries of infos that are logged as metrics
    executed_action: str | None  # entry of infos with the action that the environment took
    schedule: dict[str, dict[str, object]]  # attribute of the environment -> settings of its curriculum


def too_many(env: EnvConfig) -> list[str]:
    """Returns a fault if there are too many environments for a backend that has one object or process for each."""
    if env.backend not in SINGLE or env.num_envs <= MOST_OBJECTS:
        return []
    line = f"env.num_envs={env.num_envs}: must be at most {MOST_OBJECTS} with env.backend={env.backend}"
    return [f"{line}; native, torch, envpool and jax allow more"]


def no_object(env_id: str) -> str:
    """Returns why an environment that was passed as an object cannot be made."""
    return (
        f"env={env_id}: was passed as an object in Python; pass this object again, as in run.resume(env=...) and "
        "run.load(env=...)"
    )
