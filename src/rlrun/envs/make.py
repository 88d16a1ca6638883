"""From an id to one environment: Gymnasium's `make`, the registered wrappers, and errors a user can act on."""

import importlib
import inspect
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from rlrun.config.schema import EnvConfig
from rlrun.envs import builtin as _builtin  # noqa: F401 (registers rlrun/... with Gymnasium)
from rlrun.envs.atari import STICKY, STICKY_DEFAULT, StickyALE
from rlrun.envs.box2d import NewWorld
from rlrun.envs.explained import explained
from rlrun.envs.presented import presented, shows_masks
from rlrun.envs.rewards import reward_shape
from rlrun.envs.slot import Slot, fault
from rlrun.envs.wrappers import TimeLimit, is_training_only
from rlrun.errors import ConfigError, RlrunError, one_line
from rlrun.imports import MULTI_AGENT, advice, importing, is_named, module_of

ATARI = "ALE/"
PLAYGROUND = "playground/"


@dataclass(frozen=True)
class Recipe:
    """Makes one environment, here or in a worker. Holds everything resolved, so that a worker looks nothing up."""

    spec: EnvSpec
    kwargs: dict[str, Any]
    wrappers: tuple[tuple[Callable[[Any, gym.Env], gym.Env], Any], ...]  # (class, config), innermost first
    max_episode_steps: int | None
    instance_seed: int | None  # for reset; a constructor that takes one has it among kwargs
    id: str  # as typed: Name-v1, or module:Name-v1
    index: int = 0
    # whether infos hold an action mask, which then becomes a part of the observation; None: every environment is reset
    # once where it is made, to see
    masked: bool | None = False

    def __call__(self) -> Slot:
        """Raises ConfigError with a line about the key to change, EnvError for anything else that goes wrong."""
        try:
            with explained(self.spec, self.kwargs, self.id):
                return Slot(self.make, self.index, self.instance_seed)
        except RlrunError:
            raise
        except Exception as error:
            raise fault(self.index, error) from error

    def make(self) -> gym.Env:
        """The environment with its wrappers, as Slot holds it."""
        _quieten(str(self.spec.entry_point))
        env = _bare(self.spec, self.max_episode_steps, self.kwargs)
        for wrapper, config in self.wrappers:
            env = _wrapped(wrapper, config, env)
        masked = shows_masks(env) if self.masked is None else self.masked
        return presented(env, masked)

    @property
    def modules(self) -> list[str]:
        """Those of the user's modules that a worker must import first, for they may lie in the current folder."""
        entry = self.spec.entry_point
        entries = [entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")]
        wanted = [module_of(self.id) or "", *entries, *(wrapper.__module__ for wrapper, _ in self.wrappers)]
        return [module for module in dict.fromkeys(wanted) if is_named(module)]

    @property
    def vectorised(self) -> bool:
        """Whether its id has a simulator that steps all at once and nothing else."""
        return self.spec.entry_point is None

    def all(self, num_envs: int) -> Any:
        """The simulator of an id that has one: a vector as Gymnasium knows it, or a Simulator of `accelerated`.

        It keeps its own time, where its episodes have a limit, and takes no wrappers but evaluation's time limit.
        """
        limits = [config.max_steps for wrapper, config in self.wrappers if wrapper is TimeLimit]
        if len(limits) < len(self.wrappers):
            raise ValueError("it steps all its environments at once and takes no wrappers")
        make: Any = self.spec.vector_entry_point
        make = load_env_creator(make) if isinstance(make, str) else make
        time = {}
        if own := self.spec.max_episode_steps:  # a bandit's episodes have none
            time["max_episode_steps"] = min([self.max_episode_steps or own, *limits])
        return make(num_envs=num_envs, **(time | self.spec.kwargs | self.kwargs))

    def at(self, index: int, **task: Any) -> "Recipe":
        """For one environment, with arguments of its own."""
        return replace(self, index=index, kwargs=self.kwargs | task)


def recipe(cfg: EnvConfig) -> Recipe:
    """Resolve a config. Raises ConfigError for unknown ids, wrappers and settings, and missing extras."""
    from rlrun.registry import configured  # a worker makes environments without loading every part of rlrun

    spec = _in_jax(cfg.id) if cfg.backend == "jax" else find(cfg.id)
    given = cfg.wrappers.items()
    wrappers = [configured("wrapper", name, settings, f"env.wrappers.{name}") for name, settings in given]
    kwargs, instance_seed = dict(cfg.kwargs), cfg.instance_seed
    if "render_mode" in kwargs or instance_seed is not None:
        with explained(spec, kwargs, cfg.id):
            creator = _creator(spec)
        if "render_mode" in kwargs:
            _check_draws(creator, cfg.id, kwargs["render_mode"])
        if instance_seed is not None and "instance_seed" in inspect.signature(creator).parameters:
            kwargs["instance_seed"], instance_seed = instance_seed, None
    masked = None if cfg.action_mask else False
    return Recipe(spec, kwargs, tuple(wrappers), cfg.max_episode_steps, instance_seed, cfg.id, masked=masked)


def make(cfg: EnvConfig) -> gym.Env:
    """One environment, wrapped. Raises ConfigError or EnvError where it cannot be made."""
    return recipe(cfg)()


def find(id: str) -> EnvSpec:
    """The specification behind an id: `Name-v1`, `namespace/Name-v1`, or `module:Name-v1`, which imports the module.

    `module:Name` may also name a class of the module, a gymnasium.Env that is not registered.
    """
    if id.startswith(ATARI):
        _register_atari(id)
    if id.startswith(PLAYGROUND):
        return _in_jax(id)
    module, name = module_of(id), id.rpartition(":")[2]
    key = f"env.id={id!r}"
    holder = importing(module, key) if module is not None else None
    try:
        if holder is not None and name not in gym.registry:
            if _is_env_class(getattr(holder, name, None)):
                return EnvSpec(id, entry_point=id)
            _register_by_convention(holder, key)
        return gym.spec(name)
    except gym.error.Error as error:
        raise ConfigError(f"{key}: {one_line(error).rstrip('.')}{_hint(module or '', name)}") from error


def _is_env_class(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, gym.Env)


def _register_by_convention(holder: ModuleType, key: str) -> None:
    """Call `register_envs()` of a module or of its submodule `gym`, where there is one, as in MinAtar."""
    inner = f"{holder.__name__}.gym"
    holders = [holder, importing(inner, key)] if hasattr(holder, "__path__") and find_spec(inner) else [holder]
    for module in holders:
        register = getattr(module, "register_envs", None)
        if inspect.isfunction(register) and register.__module__.startswith(holder.__name__):  # not Gymnasium's
            register()


def _hint(module: str | None, name: str) -> str:
    """What may help where a module has no such id."""
    if module is not None and module.partition(".")[0] == MULTI_AGENT:
        return advice(MULTI_AGENT)
    namespace = name.partition("/")[0]  # shimmy registers `bsuite/...` only where bsuite is installed
    hint = advice(namespace)
    return hint if hint and find_spec(namespace) is None else ""


def _wrapped(wrapper: Callable[[Any, gym.Env], gym.Env], config: Any, env: gym.Env) -> gym.Env:
    """`env` in a wrapper. ValueError for one that is for training only and changes what evaluation must have too."""
    outer = wrapper(config, env)
    kept = (env.observation_space, env.action_space, reward_shape(env))
    if is_training_only(wrapper) and (outer.observation_space, outer.action_space, reward_shape(outer)) != kept:
        name = f"{type(outer).__module__}.{type(outer).__qualname__}"
        raise ValueError(
            f"{name} is training_only, but changes the observation space, action space or shape of rewards"
        )
    return outer


def _bare(spec: EnvSpec, max_episode_steps: int | None, kwargs: dict[str, Any]) -> gym.Env:
    """What Gymnasium makes, but for two engines whose episodes would depend on what they do not tell."""
    entry, sticky = str(spec.entry_point), (spec.kwargs | kwargs).get(STICKY, STICKY_DEFAULT)
    atari = entry.startswith("ale_py")
    own = {STICKY: 0.0} if atari else {}
    env = gym.make(spec, max_episode_steps=max_episode_steps, disable_env_checker=True, **(kwargs | own))
    if atari:
        core: Any = env.unwrapped
        core.ale = StickyALE(core, sticky)
    return NewWorld(env) if entry.startswith("gymnasium.envs.box2d") else env


def _quieten(entry_point: str) -> None:
    """MuJoCo prints warnings and writes MUJOCO_LOG.TXT where it stands: log them instead. ALE prints a banner."""
    if "mujoco" in entry_point and find_spec("mujoco") is not None:
        try:
            import mujoco
        except Exception as error:  # its renderer is chosen and loaded at import
            renderer = os.environ.get("MUJOCO_GL")
            raise ConfigError(f"MuJoCo cannot be imported ({one_line(error)}; MUJOCO_GL={renderer})") from error

        mujoco.set_mju_user_warning(_mujoco_warning)
    if "ale_py" in entry_point:
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def _mujoco_warning(message: str) -> None:
    if "deprecated" not in message:  # about Gymnasium's model files: nothing a user can act on
        logging.getLogger(__name__).warning("MuJoCo: %s", message.strip())


def _register_atari(id: str) -> None:
    if find_spec("ale_py") is None:
        raise ConfigError(f"env.id={id!r}: Atari is not installed{advice('ale_py')}")
    importlib.import_module("ale_py")  # registers its ids


def _in_jax(id: str) -> EnvSpec:
    try:
        from rlrun.simulators import tasks

        return tasks.specification(id)
    except ModuleNotFoundError as error:
        raise ConfigError(f"env: {id} in JAX: {error.name} is not installed{advice('jax')}") from error
    except gym.error.Error as error:
        raise ConfigError(f"env.id={id!r}: {one_line(error)}") from error


def _check_draws(creator: Any, id: str, mode: Any) -> None:
    """ConfigError where the environment's class says that it does not; a function says nothing."""
    metadata = getattr(creator, "metadata", None)
    if mode is not None and metadata is not None and mode not in metadata.get("render_modes", ()):
        raise ConfigError(f"env.kwargs.render_mode={mode}: {id} draws no pictures of this kind")


def _creator(spec: EnvSpec) -> Any:
    entry = spec.entry_point or spec.vector_entry_point
    return load_env_creator(entry) if isinstance(entry, str) else entry
