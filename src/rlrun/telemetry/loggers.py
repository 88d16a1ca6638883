"""Builds the loggers that a config names.

A logger is local if it writes to the folder of the run and to the terminal only.
"""

import sys
from collections.abc import Collection, Mapping

from rlrun.errors import ConfigError, printable, reason
from rlrun.imports import missing
from rlrun.settings import registry
from rlrun.telemetry.logger import Logger

GROUP = "logger"
Loggers = dict[str, Logger]


def make_loggers(settings: Mapping[str, dict[str, object]]) -> Loggers:
    """Returns the loggers of a config by name.

    Raises one ConfigError with all faults, such as unknown settings and packages that are not installed.
    """
    made = {}
    faults: list[str] = []
    for name, values in settings.items():
        try:
            made[name] = _made(name, values)
        except ConfigError as error:
            faults += error.faults
    if faults:
        raise ConfigError(*faults)
    return made


def _made(name: str, values: dict[str, object]) -> Logger:
    cls, config = registry.configured(GROUP, name, values, f"{GROUP}.{name}")
    try:
        logger: Logger = cls(config)
        return logger
    except ModuleNotFoundError as error:
        raise ConfigError(f"{GROUP}.{name}: {missing(error)}") from error
    except Exception as error:
        raise ConfigError(f"{GROUP}.{name}: cannot be used ({reason(error, located=True)})") from error


def override(settings: Mapping[str, object]) -> str:
    """Returns the override that a resume needs to use all these loggers, such as `logger=[console,wandb]`.

    It is "" if all are local, because these need none.
    """
    if all(registry.lookup(GROUP, name).local for name in settings):
        return ""
    return f"{GROUP}=[{','.join(settings)}]"


def stored_loggers(settings: Mapping[str, dict[str, object]], typed: Collection[str]) -> Loggers:
    """Returns the loggers of a stored config, which may be untrusted.

    Loggers that are not local are left out unless the user has typed their names. Each that is left out gets a line on
    stderr.
    """
    off = [name for name in settings if name not in typed and not registry.lookup(GROUP, name).local]
    for name in off:
        line = f"{GROUP}.{name} is off, because it sends data out of the run's folder"
        print(printable(f"{line}; to switch it on, resume with {override(settings)}"), file=sys.stderr)
    return make_loggers({name: values for name, values in settings.items() if name not in off})
