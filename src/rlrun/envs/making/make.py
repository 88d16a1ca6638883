"""Makes one environment from its id: calls Gymnasium's `make`, applies the registered wrappers, explains errors."""

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

from rlrun.envs import builtin as _builtin  # noqa: F401 (registers rlrun/... with Gymnasium)
from rlrun.envs.builtin.bandits import OneStep
from rlrun.envs.config import OBJECT, PLAYGROUND, EnvConfig, no_object
from rlrun.envs.making.box2d import NewWorld
from rlrun.envs.making.explained import explained
from rlrun.envs.simulators import suite
from rlrun.envs.stepping.obs_adapter import adapt_observations, shows_masks
from rlrun.envs.stepping.slot import EnvSlot
from rlrun.envs.wrappers.atari import STICKY, STICKY_DEFAULT, StickyALE
from rlrun.envs.wrappers.reward_vectors import reward_shape
from rlrun.envs.wrappers.wrapper import TimeLimit, is_training_only
from rlrun.errors import ConfigError, one_line
from rlrun.imports import MULTI_AGENT, advice, import_named, is_path, module_of, name_of, reference_of

ATARI = "ALE/"


@dataclass(frozen=True)
class Recipe:
    """Makes one environment, in this process or in a worker.

    It holds wrapper classes and their configs instead of names, so a worker does not need rlrun's registry.
    """

    spec: EnvSpec
    kwargs: dict[str, Any]
    wrappers: tuple[tuple[Callable[[Any, gym.Env], gym.Env], Any], ...]  # (class, config), innermost first
    max_episode_steps: int | None
    instance_seed: int | None  # an option of every reset; None if it is not set, or is in kwargs for the constructor
    id: str  # env.id: Name-v1, or module:Name-v1
    index: int = 0
    index_kwarg: str | None = None  # the constructor argument that is the index
    log_info: tuple[str, ...] = ()  # entries of infos to log
    executed_action: str | None = None  # the entry of infos that is the action which the environment took
    # whether infos hold an action mask, which is then added to the observation; None: not known, so that each new
    # environment is reset once to find out
    masked: bool | None = False
    action_mask: bool = True  # env.action_mask: use masks; refuse one that comes after a first reset without

    def __call__(self) -> EnvSlot:
        """Returns the new environment. Raises ConfigError with the key to change."""
        with explained(self.spec, self.kwargs, self.id):
            slot = (self.make, self.index, self.instance_seed, self.log_info, self.action_mask, self.executed_action)
            return EnvSlot(*slot)

    def make(self, **task: float) -> gym.Env:
        """Returns the environment in its wrappers and the observation adapter, without an EnvSlot around them.

        task: overrides constructor arguments.
        """
        _quieten(str(self.spec.entry_point))
        env = _bare(self.spec, self.max_episode_steps, self.kwargs | task)
        for wrapper, config in self.wrappers:
            env = _wrapped(wrapper, config, env)
        masked = self.masked
        if masked is None:
            masked = shows_masks(env)
        return adapt_observations(env, masked)

    @property
    def modules(self) -> list[str]:
        """The user's modules, which a worker must import before it loads the recipe: their names or absolute paths.

        They may lie in the current folder, and only `rlrun.imports` searches there.
        """
        entry = self.spec.entry_point
        if isinstance(entry, str):
            home = entry.partition(":")[0]
        else:
            home = getattr(entry, "__module__", "")
        wanted = [name_of(module_of(self.id) or ""), home, *(wrapper.__module__ for wrapper, _ in self.wrappers)]
        references = [reference_of(module) for module in wanted]
        return [reference for reference in dict.fromkeys(references) if reference is not None]

    @property
    def vectorised(self) -> bool:
        """Whether the id has only a vector env, which steps all environments at once, and no single environment."""
        return self.spec.entry_point is None

    @property
    def time_limit(self) -> int | None:
        """The time limit of an episode, or None. A smaller limit inside of the environment is not known."""
        limits = [config.max_steps for wrapper, config in self.wrappers if wrapper is TimeLimit]
        return min(filter(None, [self.max_episode_steps or self.spec.max_episode_steps, *limits]), default=None)

    def vector_env(self, num_envs: int) -> Any:
        """Returns the vector env of this id: one of Gymnasium's, or a `Simulator` from `accelerated`.

        It gets the time limit as the argument `max_episode_steps`; one without this argument ignores `time_limit`
        wrappers. Raises ValueError for other wrappers, and if it cannot apply env.max_episode_steps.
        """
        if any(wrapper is not TimeLimit for wrapper, _ in self.wrappers):
            raise ValueError("it steps all its environments at once and takes no wrappers")
        make: Any = entry_point(self.spec.vector_entry_point)
        arguments: dict[str, object] = {"num_envs": num_envs}
        # the constructor of an id with a registered limit accepts it, if only in **kwargs: gym.make_vec passes it too
        takes_limit = self.spec.max_episode_steps or "max_episode_steps" in inspect.signature(make).parameters
        if takes_limit and self.time_limit is not None:
            arguments["max_episode_steps"] = self.time_limit
        elif self.max_episode_steps is not None and not _has_one_step(make):
            raise ValueError("its vector env has no time limit that env.max_episode_steps could set")
        return make(**(arguments | self.spec.kwargs | self.kwargs))

    def at(self, index: int, **task: object) -> "Recipe":
        """Returns a copy for the environment with this index; `task` overrides constructor arguments."""
        kwargs = self.kwargs | task
        if self.index_kwarg is not None:
            kwargs[self.index_kwarg] = index
        return replace(self, index=index, kwargs=kwargs)


def recipe(cfg: EnvConfig) -> Recipe:
    """Returns the recipe for a config. Raises ConfigError for unknown ids, wrappers, settings, and missing extras."""
    # imported here because workers, which also load this module, do not need it
    from rlrun.settings.registry import configured

    if cfg.backend == "jax":
        spec = _in_jax(cfg.id)
    elif cfg.backend == "torch":
        spec = _in_torch(cfg.id)
    else:
        spec = find(cfg.id)
    wrappers = []
    for name, settings in cfg.wrappers.items():
        wrappers.append(configured("wrapper", name, settings, f"env.wrappers.{name}"))
    kwargs, instance_seed = dict(cfg.kwargs), cfg.instance_seed
    if cfg.index_kwarg is not None:
        if cfg.index_kwarg in kwargs or cfg.index_kwarg in cfg.task_kwargs:
            raise ConfigError(f"env.index_kwarg={cfg.index_kwarg}: env.kwargs or env.task_kwargs set it too")
        kwargs[cfg.index_kwarg] = 0
    if "render_mode" in kwargs or instance_seed is not None or cfg.index_kwarg is not None:
        with explained(spec, kwargs, cfg.id):
            creator: Any = entry_point(spec.entry_point or spec.vector_entry_point)
        if "render_mode" in kwargs:
            _check_render_mode(creator, cfg.id, kwargs["render_mode"])
        if instance_seed is not None and "instance_seed" in inspect.signature(creator).parameters:
            kwargs["instance_seed"] = instance_seed
            instance_seed = None
        if cfg.index_kwarg is not None and not _takes(creator, cfg.index_kwarg):
            raise ConfigError(f"env.index_kwarg={cfg.index_kwarg}: {cfg.id} has no constructor argument of this name")
    masked = None  # not known yet
    if not cfg.action_mask:
        masked = False
    return Recipe(
        spec,
        kwargs,
        tuple(wrappers),
        cfg.max_episode_steps,
        instance_seed,
        cfg.id,
        masked=masked,
        action_mask=cfg.action_mask,
        index_kwarg=cfg.index_kwarg,
        log_info=tuple(cfg.log_info),
        executed_action=cfg.executed_action,
    )


def make(cfg: EnvConfig) -> gym.Env:
    """Returns one environment with its wrappers. Raises ConfigError if it cannot be made."""
    return recipe(cfg)()


def find(id: str) -> EnvSpec:
    """Returns Gymnasium's specification of an id: `Name-v1`, `namespace/Name-v1` or `module:Name-v1`.

    For `module:Name-v1` the module is imported first. `Name` may also be a subclass of gymnasium.Env in that module
    that is not registered. Raises ConfigError if there is no such environment.
    """
    if id.startswith(OBJECT) and id not in gym.registry:
        raise ConfigError(no_object(id))
    if id.startswith(ATARI):
        _register_atari(id)
    if id.startswith(PLAYGROUND):
        return _in_jax(id)
    module, name = module_of(id), id.rpartition(":")[2]
    key = f"env.id={id!r}"
    holder = None
    if module is not None:
        holder = import_named(module, key)
    try:
        if holder is not None and name not in gym.registry:
            if _is_env_class(getattr(holder, name, None)):
                entry = f"{holder.__name__}:{name}"
                return EnvSpec(entry, entry_point=entry)
            _register_by_convention(holder, key)
        spec = gym.spec(name)
        if spec.entry_point is None and name in suite.ENTRY_POINTS:  # gym.make_vec makes another class
            spec = replace(spec, vector_entry_point=suite.ENTRY_POINTS[name])
        return spec
    except gym.error.Error as error:
        if is_path(module or ""):
            raise ConfigError(f"{key}: {_absence(holder, name)}") from error
        raise ConfigError(f"{key}: {one_line(error).rstrip('.')}{_hint(module or '', name)}") from error


def _absence(holder: Any, name: str) -> str:
    """Returns the message that a file has no such environment, with the classes of environments that it has."""
    found = [key for key, value in vars(holder).items() if _is_env_class(value) and value.__module__ == holder.__name__]
    text = f"the file has no gymnasium.Env {name!r} and registers no such id"
    if found:
        text += f" (its classes: {', '.join(found)})"
    return text


def _is_env_class(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, gym.Env)


def _register_by_convention(holder: ModuleType, key: str) -> None:
    """Calls the function `register_envs` of a module and of its submodule `gym`, if they exist (MinAtar has one)."""
    inner = f"{holder.__name__}.gym"
    holders = [holder]
    if hasattr(holder, "__path__") and find_spec(inner):
        holders.append(import_named(inner, key))
    for module in holders:
        register = getattr(module, "register_envs", None)
        # a module may have imported Gymnasium's function of this name, which takes a module
        if not inspect.isfunction(register) or inspect.signature(register).parameters:
            continue
        if register.__module__.startswith(holder.__name__):
            register()


def _takes(creator: Callable[..., object], name: str) -> bool:
    """Returns whether a function or class has an argument of this name, or takes any."""
    parameters = inspect.signature(creator).parameters.values()
    return any(parameter.name == name or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _hint(module: str | None, name: str) -> str:
    """Returns advice for an id that is not registered, or "" if there is none."""
    if module is not None and module.partition(".")[0] == MULTI_AGENT:
        return advice(MULTI_AGENT)
    namespace = name.partition("/")[0]  # shimmy registers `bsuite/...` only if bsuite is installed
    hint = advice(namespace)
    if hint and find_spec(namespace) is None:
        return hint
    return ""


def _wrapped(wrapper: Callable[[object, gym.Env], gym.Env], config: object, env: gym.Env) -> gym.Env:
    """Returns `env` in a wrapper.

    Raises ValueError if the wrapper is training_only but changes the spaces or the shape of rewards.
    """
    outer = wrapper(config, env)
    kept = (env.observation_space, env.action_space, reward_shape(env))
    if is_training_only(wrapper) and (outer.observation_space, outer.action_space, reward_shape(outer)) != kept:
        name = f"{type(outer).__module__}.{type(outer).__qualname__}"
        raise ValueError(
            f"{name} is training_only, but changes the observation space, action space or shape of rewards"
        )
    return outer


def _bare(spec: EnvSpec, max_episode_steps: int | None, kwargs: dict[str, object]) -> gym.Env:
    """Returns the environment from `gym.make`, with fixes that make ALE's sticky actions and Box2D deterministic."""
    entry = str(spec.entry_point)
    sticky = (spec.kwargs | kwargs).get(STICKY, STICKY_DEFAULT)
    is_atari = entry.startswith("ale_py")
    if is_atari:
        kwargs = kwargs | {STICKY: 0.0}
    env = gym.make(spec, max_episode_steps=max_episode_steps, disable_env_checker=True, **kwargs)
    if is_atari:
        core: Any = env.unwrapped
        core.ale = StickyALE(core, sticky)
    if entry.startswith("gymnasium.envs.box2d"):
        return NewWorld(env)
    return env


def _has_one_step(make: object) -> bool:
    """Returns whether each episode of a vector env has one step, which every time limit allows."""
    return isinstance(make, type) and issubclass(make, OneStep)


def _quieten(entry_point: str) -> None:
    """Redirects MuJoCo's warnings from MUJOCO_LOG.TXT in the current folder to the log, and silences ALE's banner."""
    if "mujoco" in entry_point and find_spec("mujoco") is not None:
        try:
            import mujoco
        except Exception as error:  # the import loads the renderer that MUJOCO_GL names, which may fail
            renderer = os.environ.get("MUJOCO_GL")
            raise ConfigError(f"MuJoCo cannot be imported ({one_line(error)}; MUJOCO_GL={renderer})") from error

        mujoco.set_mju_user_warning(_mujoco_warning)
    if "ale_py" in entry_point:
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def _mujoco_warning(message: str) -> None:
    if "deprecated" not in message:  # such messages are about Gymnasium's model files, which a user cannot change
        logging.getLogger(__name__).warning("MuJoCo: %s", message.strip())


def _register_atari(id: str) -> None:
    if find_spec("ale_py") is None:
        raise ConfigError(f"env.id={id!r}: Atari is not installed{advice('ale_py')}")
    importlib.import_module("ale_py")  # registers its ids


def _in_jax(id: str) -> EnvSpec:
    try:
        from rlrun.envs.simulators import tasks

        return tasks.specification(id)
    except ModuleNotFoundError as error:
        raise ConfigError(f"env: {id} in JAX: {error.name} is not installed{advice('jax')}") from error
    except gym.error.Error as error:
        raise ConfigError(f"env.id={id!r}: {one_line(error)}") from error


def _in_torch(id: str) -> EnvSpec:
    """Returns the specification of an id, with the vector env in torch as its vector entry point."""
    if id not in suite.ENTRY_POINTS:
        raise ConfigError(
            f"env.backend=torch: {id} is not written in torch (there are: {', '.join(suite.ENTRY_POINTS)})"
        )
    return replace(find(id), vector_entry_point=suite.ENTRY_POINTS[id])


def _check_render_mode(creator: object, id: str, mode: object) -> None:
    """Raises ConfigError if the environment's class does not declare this render mode.

    Nothing is checked if the entry point is a function, which has no metadata.
    """
    metadata = getattr(creator, "metadata", None)
    if mode is None or metadata is None:
        return
    modes = metadata.get("render_modes", ())
    if mode not in modes:
        line = f"env.kwargs.render_mode={mode}: {id} has no such render mode"
        if not modes:
            line += "; it draws no images, so it can be neither filmed nor shown"
        raise ConfigError(line)


def entry_point(entry: object) -> Any:
    """Returns the function or class of an entry point in Gymnasium's registry; the text `module:name` is imported."""
    if isinstance(entry, str):
        return load_env_creator(entry)
    return entry
