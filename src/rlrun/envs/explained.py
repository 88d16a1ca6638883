"""Errors of constructors of environments, as one line about what to change or to install."""

import importlib.metadata
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from packaging.specifiers import SpecifierSet

from rlrun.envs.slot import EnvError
from rlrun.errors import ConfigError, RlrunError, one_line, reason
from rlrun.imports import advice, missing

REFUSALS = (TypeError, ValueError, gym.error.Error, OSError)  # raised by constructors for wrong arguments
# Packages that do not run with every MuJoCo: the extra of rlrun that brings them, and what it pins.
MUJOCO = {"gymnasium_robotics": ("robotics", "<3.12"), "dm_control": ("dm_control", ">=3.17,<4")}


@contextmanager
def explained(spec: EnvSpec, kwargs: dict[str, Any], id: str) -> Iterator[None]:
    """Turns what a constructor raises into a line about the key to change. Raises ConfigError."""
    try:
        yield
    except RlrunError:
        raise
    except EnvError as error:
        raise ConfigError(f"env: {id} #{error.index} cannot be made ({error.reason})") from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"env.id={id!r}: {missing(error)}") from error
    except gym.error.DependencyNotInstalled as error:
        raise ConfigError(f"env.id={id!r}: {one_line(error)}{advice(_engine(spec))}") from error
    except Exception as error:
        where = "env"
        if kwargs:
            where = f"env.kwargs={kwargs}"
        if isinstance(error, REFUSALS) and str(error):
            raise ConfigError(f"{where}: {id} cannot be made ({one_line(error)})") from error
        why = reason(error, located=True)
        raise ConfigError(f"{where}: {id} cannot be made ({why}){_other_mujoco(error)}") from error


def _engine(spec: EnvSpec) -> str:
    """The module that is missing where Gymnasium does not name it."""
    entry = str(spec.entry_point)
    if "box2d" in entry:
        return "Box2D"
    return entry.partition(".")[0]


def _other_mujoco(error: Exception) -> str:
    """What to install, where a package that raised does not run with the version of MuJoCo that is here."""
    here = importlib.metadata.version("mujoco")
    raised = {frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(error.__traceback__)}
    for package, (extra, pin) in MUJOCO.items():
        if package in raised and here not in SpecifierSet(pin):
            command = f"python -m venv .venv-{extra} && .venv-{extra}/bin/pip install 'rlrun[{extra}]'"
            return f"; {package} needs mujoco{pin}, here is {here}: {command}"
    return ""
