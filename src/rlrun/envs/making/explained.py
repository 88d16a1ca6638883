"""Turns errors from an environment's constructor into one line that says what to change or to install."""

import importlib.metadata
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from packaging.specifiers import SpecifierSet

from rlrun.envs.stepping.slot import EnvError
from rlrun.errors import ConfigError, RlrunError, one_line, reason
from rlrun.imports import advice, missing

REFUSALS = (TypeError, ValueError, gym.error.Error, OSError)  # raised by constructors for wrong arguments
# packages that need certain versions of MuJoCo: package -> (extra of rlrun that installs it, versions of mujoco)
MUJOCO = {"gymnasium_robotics": ("robotics", "<3.12"), "dm_control": ("dm-control", ">=3.17,<4")}


@contextmanager
def explained(spec: EnvSpec, kwargs: dict[str, object], id: str) -> Iterator[None]:
    """Raises ConfigError with the key to change for any exception in the context. RlrunErrors pass unchanged."""
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
    except (Exception, SystemExit) as error:  # a simulator may call sys.exit
        where = "env"
        if kwargs:
            where = f"env.kwargs={kwargs}"
        if isinstance(error, REFUSALS) and str(error):
            raise ConfigError(f"{where}: {id} cannot be made ({one_line(error)})") from error
        why = reason(error, located=True)
        raise ConfigError(f"{where}: {id} cannot be made ({why}){_other_mujoco(error)}") from error


def _engine(spec: EnvSpec) -> str:
    """Returns the name of the package that the environment needs, since Gymnasium's error does not state it."""
    entry = str(spec.entry_point)
    if "box2d" in entry:
        return "Box2D"
    return entry.partition(".")[0]


def _other_mujoco(error: BaseException) -> str:
    """Returns advice if the exception came from a package that does not support the installed MuJoCo, else ""."""
    here = importlib.metadata.version("mujoco")
    raised = {frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(error.__traceback__)}
    for package, (extra, pin) in MUJOCO.items():
        if package in raised and here not in SpecifierSet(pin):
            command = f"python -m venv .venv-{extra} && .venv-{extra}/bin/pip install 'rlrun[{extra}]'"
            return f"; {package} needs mujoco{pin}, but {here} is installed: {command}"
    return ""
