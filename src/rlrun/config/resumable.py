"""What a run may change when it goes on, and which runs are the same run."""

import copy
import re
from collections.abc import Mapping
from typing import Any

from rlrun.config import check
from rlrun.errors import ConfigError

# they decide how long, where, and when to look; nothing that was learned depends on them
FREE = (
    "trainer.total_steps", "trainer.eval_every", "trainer.eval_episodes", "trainer.eval_max_steps",
    "trainer.log_every", "trainer.snapshot_every", "trainer.snapshot_keep",
    "trainer.snapshot_archive_every", "trainer.snapshot_on_failure", "trainer.threads",
    "device", "logger.console", "logger.tensorboard", "env.timeout_s", "env.on_failure",
)  # fmt: skip
PLACES = ("run_dir", "resume", "plugins")


def changed(values: dict[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """A stored config with `words` (key path to value) applied. ConfigError for keys a run cannot change."""
    values = copy.deepcopy(values)
    faults = []
    for key, value in words.items():
        if key not in FREE:
            known = check.lookup(key, values) is not check.ABSENT
            why = "cannot change in a resumed run; a new one starts from its weights with init_from=RUN"
            faults.append(f"{key}: {why if known else 'unknown key' + check.nearest(key, FREE)}")
            continue
        *sections, name = key.split(".")
        section = values
        for part in sections:
            section = section[part]
        section[name] = value
    if faults:
        raise ConfigError(*faults)
    return values


def completed(values: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """A stored config with the keys that have come since it was written, at the values of today's files.

    words: as the run was typed; only its plain choices are read, for they are a stranger's.
    """
    from rlrun.config.jobs import jobs

    choices = [word for word in words if re.fullmatch(r"(algo|env|network|trainer|preset)=[\w./-]+", word)]
    try:
        return _filled(values, jobs(choices)[0].values)
    except ConfigError:  # names of another time, or of a plug-in: what is missing will be said
        return values


def _filled(values: dict[str, Any], today: dict[str, Any], path: str = "") -> dict[str, Any]:
    found = dict(values)
    for key, value in today.items():
        old = found.setdefault(key, value)
        same_part = isinstance(old, dict) and isinstance(value, dict) and old.get("name") == value.get("name")
        if same_part and f"{path}{key}" not in check.OPEN:
            found[key] = _filled(old, value, f"{path}{key}.")
    return found


def free(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a config that a resumed run may take over."""
    return {key: check.lookup(key, values) for key in FREE}


def same_run(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two configs differ in nothing but what may change."""
    return _fixed(one) == _fixed(other)


def _fixed(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    return {
        key: _fixed(value, f"{path}{key}.") if isinstance(value, dict) else value
        for key, value in values.items()
        if f"{path}{key}" not in (*FREE, *PLACES)
    }
