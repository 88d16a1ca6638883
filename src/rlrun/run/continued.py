"""Reads the parts of a stored run that may be untrusted, and checks them before the run goes on."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlrun.config.reach import ADDRESSES, reaches
from rlrun.config.resumable import added_callbacks, folded
from rlrun.config.schema import RunConfig
from rlrun.config.stored import CONFIG, read_config
from rlrun.errors import ConfigError
from rlrun.run.reschedule import rescheduled
from rlrun.run.trained import stored_config
from rlrun.run.untrusted import check_environment
from rlrun.settings import registry
from rlrun.telemetry.loggers import Loggers, stored_loggers

# settings that name folders for demonstrations, or the address of a cluster
TYPED_AGAIN = ("algo.buffer.save_to", "algo.buffer.supplementary", *ADDRESSES)


class Continued(NamedTuple):
    """The parts of a stored run that may be untrusted, after their checks."""

    config: RunConfig
    loggers: Loggers
    words: dict[str, Any]  # the settings that the user typed, by dotted key
    changes: dict[str, Any]  # the settings whose value differs from the stored one


def stored_parts(path: Path, typed_words: Mapping[str, object], step: int, typed: bool = False) -> Continued:
    """Returns the config and the loggers of a stored run, with the user's changes applied.

    typed_words: settings that the user typed, by dotted key. step: the step at which the run goes on. typed: as in
    `resume`.
    """
    values = read_config(path / CONFIG)
    words = folded(typed_words, values)
    changes = rescheduled(values, words, step)
    config = stored_config(path, changes, typed)
    first_new = len(config.callbacks) - len(added_callbacks(values, typed_words))
    check_callbacks(config.callbacks[first_new:])
    loggers = stored_loggers(config.logger, typed_words, path)
    if typed:
        for logger in loggers.values():
            logger.trust(path)
    else:
        check_environment(config.env, words)
        check_typed(values | {"cluster": config.cluster}, {**words, **typed_words})
    return Continued(config, loggers, words, changes)


def check_callbacks(added: Iterable[Mapping[str, object]]) -> None:
    """Raises ConfigError for a callback that a resume adds and that changes the run."""
    faults = []
    for values in added:
        changes = registry.lookup("callback", str(values["name"])).changes
        if changes is not None:
            faults.append(f"callbacks: {values['name']} changes {changes}, so only a new run may have it: rlrun reset")
    if faults:
        raise ConfigError(*faults)


def check_typed(values: Mapping[str, object], typed: Mapping[str, object]) -> None:
    """Raises ConfigError for the settings `TYPED_AGAIN` of a stored config, unless the user typed them too."""
    faults = [reach.line for reach in reaches(values) if reach.key in TYPED_AGAIN and reach.key not in typed]
    if faults:
        raise ConfigError(*faults)
