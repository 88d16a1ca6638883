"""Registers environments that a Python program passes as objects with Gymnasium, for the duration of a call.

Such an environment has the id `object/<Name>-v0`. A config file cannot hold the object, so only the program that has
it can continue the run.
"""

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gymnasium as gym

from rlrun.envs.config import OBJECT
from rlrun.errors import ConfigError


@contextmanager
def passed(env: object) -> Iterator[str | None]:
    """As a context manager, registers an environment and yields its id.

    env: a class or a function that makes an environment; an environment, of which every environment of the run is a
    copy; or a name or None, which are not registered. Raises ConfigError for anything else.
    """
    if env is None or isinstance(env, str):
        yield env
        return
    name, make = _maker(env)
    id = f"{OBJECT}{name}-v0"
    outer = gym.registry.pop(id, None)  # an environment of the same name that an outer call registered
    gym.register(id, make)
    try:
        yield id
    finally:
        gym.registry.pop(id, None)
        if outer is not None:
            gym.registry[id] = outer


def check_same(env: object, trained_with: str) -> None:
    """Raises ConfigError if an environment is passed for a run that was trained with a name or with another object.

    trained_with: the id of the run's environment.
    """
    name = env
    if not isinstance(env, str):
        name, _ = _maker(env)
    if isinstance(env, str) or not trained_with.startswith(OBJECT):
        raise ConfigError(
            f"env={name}: the run has an environment; pass one only if the run was trained with an object"
        )
    if f"{OBJECT}{name}-v0" != trained_with:
        raise ConfigError(f"env={name}: the run was trained with {trained_with}; pass the object of that name")


def _maker(env: object) -> tuple[str, Callable[..., gym.Env]]:
    """Returns a name for the id, and a function that makes the environment."""
    if isinstance(env, gym.Env):
        return _name(type(env.unwrapped).__name__), lambda **kwargs: _copied(env, kwargs)
    if callable(env):
        return _name(getattr(env, "__name__", type(env).__name__)), env
    raise ConfigError(
        f"env: {type(env).__name__} is not an environment; pass a name, a subclass of gymnasium.Env, a function that "
        "returns an environment, or an environment"
    )


def _name(text: str) -> str:
    """Returns a name that Gymnasium accepts in an id."""
    return re.sub(r"\W", "", text) or "Env"


def _copied(env: gym.Env, kwargs: dict[str, object]) -> gym.Env:
    """Returns a deep copy of an environment. Raises ConfigError if it cannot be copied or gets arguments."""
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    if kwargs:
        raise ConfigError(f"env.kwargs: {', '.join(kwargs)}: an environment object takes no arguments; pass its class")
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise ConfigError(
            f"env: {type(env.unwrapped).__name__} cannot be copied ({error}); pass its class, or a function"
        ) from error
