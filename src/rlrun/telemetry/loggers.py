"""Builds the loggers that a config names.

A logger is local if it writes to the folder of the run and to the terminal only.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from rlrun import dotted
from rlrun.config.loggers import named
from rlrun.config.reach import of_logger
from rlrun.errors import ConfigError, printable, reason
from rlrun.imports import missing
from rlrun.settings import registry
from rlrun.telemetry import sent_before
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
    except ConfigError as error:
        raise ConfigError(*(f"{GROUP}.{name}: {fault}" for fault in error.faults)) from error
    except Exception as error:
        raise ConfigError(f"{GROUP}.{name}: cannot be used ({reason(error, located=True)})") from error


def override(settings: Mapping[str, object]) -> str:
    """Returns the override that a resume needs to use all these loggers, such as `logger=[console,wandb]`.

    It is "" if all are local, because these need none.
    """
    if all(registry.lookup(GROUP, name).local for name in settings):
        return ""
    return f"{GROUP}=[{','.join(settings)}]"


def stored_loggers(settings: Mapping[str, dict[str, object]], words: Mapping[str, object], run: Path) -> Loggers:
    """Returns the loggers of a stored config, which may be untrusted.

    Loggers that are not local are left out unless the user has typed their names. Each that is left out gets a line on
    stderr. Raises ConfigError for each setting of the others that is not a default, and that the user has neither typed
    nor used before for this run.

    words: what the user has typed, by dotted key. run: the folder of the stored config.
    """
    typed = named(words)
    typed_keys = {key for key, _ in dotted.leaves(dict(words))}
    off = []
    faults = []
    for name, values in settings.items():
        if registry.lookup(GROUP, name).local:
            continue
        if name not in typed:
            off.append(name)
        elif not sent_before.is_remembered(run, name, values):
            faults += [reach.line for reach in of_logger(name, values) if reach.key not in typed_keys]
    if faults:
        raise ConfigError(*faults)
    for name in off:
        line = f"{GROUP}.{name} is off, because it sends data out of the run's folder"
        print(printable(f"{line}; to switch it on, resume with {override(settings)}"), file=sys.stderr)
    return make_loggers({name: values for name, values in settings.items() if name not in off})


def remember(settings: Mapping[str, dict[str, object]], loggers: Loggers, run: Path) -> None:
    """Stores that a run uses these loggers, so that its resume needs no more than their names."""
    for name, logger in loggers.items():
        if not logger.local:
            sent_before.remember(run, name, settings[name])
