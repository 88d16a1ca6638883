"""Which settings a resumed run may change, and whether two configs are of the same run."""

import copy
import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import dotted
from rlrun.config import check, loggers, parts
from rlrun.config.sources import PlainYaml
from rlrun.config.stored import CONFIG, OVERRIDES, parse_config, parse_words, parse_yaml, read_text
from rlrun.errors import ConfigError
from rlrun.formats.history import METRICS_KEY

PUT_IT_BACK = "put it back, or start a new run from its weights with init_from=RUN"

CLUSTER = "cluster"  # section that says in which processes shards run
# settings of duration, device, evaluation, logging and snapshots, which do not change the result of training
FREE = (
    "trainer.total_steps", "trainer.total_updates", "trainer.stop_at",
    "trainer.stop_when.metric", "trainer.stop_when.at_least",
    "trainer.stop_when.at_most", "trainer.stop_when.times", "trainer.stop_when.plateau", "trainer.stop_when.hours",
    "trainer.period_unit", "trainer.eval_every", "trainer.num_evals", "trainer.eval_episodes",
    "trainer.eval_max_steps", "trainer.eval_envs", "trainer.eval_sampled", "trainer.eval_beside",
    "trainer.log_every", "trainer.num_rows", "trainer.min_episodes",
    "trainer.snapshot_every", "trainer.num_snapshots", "trainer.snapshot_keep",
    "trainer.snapshot_archive_every", "trainer.snapshot_replay", "trainer.snapshot_on_failure",
    "trainer.snapshot_at_crash",
    "trainer.engine", "trainer.threads", "device", "logger", "env.timeout_s", "env.on_failure", "env.selftest",
    "env.ray.address", "env.ray.workers", "env.ray.cpus",
    CLUSTER,
)  # fmt: skip
SCHEDULE = "algo.schedule"  # may change too, because a schedule says from which step on its values hold
TOTAL_STEPS = "trainer.total_steps"
CALLBACKS = "callbacks"  # those that a resume names are added; they must not change the run
PLACES = ("run_dir", "resume", "plugins")  # settings of a command line, which a comparison of runs leaves out


def news(values: dict[str, object], words: Mapping[str, object]) -> dict[str, object]:
    """Returns the `words` (dotted key to value) whose values differ from a stored config."""
    return {key: value for key, value in words.items() if dotted.lookup(key, values) != value}


def folded(words: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """Returns the words of a resume, with all words about loggers combined into one, and all about the cluster.

    The callbacks become those of the run and those that the words add. values: the stored config. Raises ConfigError
    for names and settings that do not exist.
    """
    rest = loggers.folded(words, values)
    if CALLBACKS in rest:
        rest[CALLBACKS] = [*_callbacks(values.get(CALLBACKS)), *added_callbacks(values, rest)]
    typed = {key: rest.pop(key) for key in [*rest] if key.partition(".")[0] == CLUSTER}
    if not typed:
        return rest
    section = typed.pop(CLUSTER, values.get(CLUSTER))
    if isinstance(section, str):
        section = parts.settings(CLUSTER, CLUSTER, section)
    tree = {CLUSTER: copy.deepcopy(section)}
    if faults := parts.apply(typed, tree):
        raise ConfigError(*faults)
    return rest | tree


def added_callbacks(values: Mapping[str, object], words: Mapping[str, object]) -> list[object]:
    """Returns the callbacks in the words of a resume that the run does not have yet. values: the stored config."""
    known = [_named(callback) for callback in _callbacks(values.get(CALLBACKS))]
    return [callback for callback in _callbacks(words.get(CALLBACKS)) if _named(callback) not in known]


def _callbacks(section: object) -> list[object]:
    """Returns a list of callbacks. Raises ConfigError for anything else, as a stored config may hold."""
    if section is None:
        return []
    if not isinstance(section, list):
        raise ConfigError(f"{CALLBACKS}={dotted.show(section)}: must be a list: {CALLBACKS}=[{{name: my_callback}}]")
    return section


def _named(callback: object) -> object:
    """Returns a callback in its long form, {name: my_callback}."""
    if isinstance(callback, str):
        return {"name": callback}
    return callback


def changed(values: dict[str, object], words: Mapping[str, object]) -> dict[str, Any]:
    """Returns a stored config with `words` (dotted key to value) applied.

    Raises ConfigError for keys that a resumed run may not change.
    """
    values = copy.deepcopy(values)
    faults = []
    for key, value in words.items():
        if key not in (*FREE, SCHEDULE, CALLBACKS):
            why = "cannot be changed in a resumed run; to start a new run from its weights, use init_from=RUN"
            if dotted.lookup(key, values) is dotted.ABSENT:
                why = f"unknown key{check.nearest_key(key, values)}"
            faults.append(f"{key}: {why}")
            continue
        section, _, name = key.rpartition(".")
        home = values
        if section:
            home = dotted.lookup(section, values)
        if isinstance(home, dict):
            home[name] = value
        else:
            faults.append(f"{section}: missing")
    if faults:
        raise ConfigError(*faults)
    return values


class Recorded(NamedTuple):
    """The texts of config.yaml and overrides.yaml of a run. Every snapshot holds both."""

    config: str
    overrides: str

    @classmethod
    def read(cls, run: Path) -> "Recorded":
        """Reads both files of a run. Raises ConfigError if one cannot be read."""
        return cls(read_text(run / CONFIG), read_text(run / OVERRIDES))


def check_unchanged(run: Path, then: Recorded) -> None:
    """Raises ConfigError, with a line for each key, if config or overrides were edited since the snapshot was taken.

    Comments and the order of keys may differ. Changes by `rlrun resume` are allowed: it appends them to overrides.yaml.
    """
    now = Recorded.read(run)
    if now == then:
        return
    old_words = parse_words(then.overrides, run / OVERRIDES)
    words = parse_words(now.overrides, run / OVERRIDES)
    if words[: len(old_words)] != old_words:
        raise ConfigError(f"{run / OVERRIDES}: was edited: {_first_difference(old_words, words)}; {PUT_IT_BACK}")
    appended = words[len(old_words) :]
    recorded = parse_config(then.config, run / CONFIG)
    found = parse_config(now.config, run / CONFIG)
    changes = folded(dict(map(setting, appended)), recorded.values)
    expected = changed(recorded.values, changes) | {METRICS_KEY: recorded.metrics_format}
    faults = []
    for key, before, after in differences(expected, found.values | {METRICS_KEY: found.metrics_format}):
        faults.append(f"{run / CONFIG}: was edited: {key} {before} -> {after}; {PUT_IT_BACK}")
    if faults:
        raise ConfigError(*faults)


def differences(one: dict[str, object], other: dict[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yields each key in which two configs differ, with both values as the user types them; "-" for a missing key."""
    left = dict(dotted.leaves(one))
    right = dict(dotted.leaves(other))
    for key in dict.fromkeys([*left, *right]):
        before = left.get(key, dotted.ABSENT)
        after = right.get(key, dotted.ABSENT)
        if repr(before) != repr(after):  # `!=` would treat 1, 1.0 and true as equal
            yield key, _shown(before), _shown(after)


def setting(word: str) -> tuple[str, Any]:
    """Returns key and value of a word such as `a.b=1e6`.

    A value that is not a number is parsed as YAML with the limits of a stored file; if that fails, it is a text.
    """
    key, _, text = word.partition("=")
    try:
        number = float(text)
    except ValueError:
        try:
            return key, parse_yaml(text, Path(key), PlainYaml)
        except ConfigError:
            return key, text
    if number.is_integer():
        return key, int(number)
    return key, number


def word(key: str, value: object) -> str:
    """Returns the word of a setting; `setting` parses it. Sections and callbacks are JSON, which is also YAML."""
    if isinstance(value, dict) or key == CALLBACKS:
        return f"{key}={json.dumps(value)}"
    return f"{key}={dotted.show(value)}"


def _shown(value: object) -> str:
    if value is dotted.ABSENT:
        return "-"
    return dotted.show(value)


def _first_difference(before: list[str], after: list[str]) -> str:
    """Returns `old -> new` for the first word that differs between both lists; "-" for a missing word."""
    for old, new in zip_longest(before, after, fillvalue="-"):
        if old != new:
            return f"{old} -> {new}"
    return ""


def free(values: dict[str, object]) -> dict[str, object]:
    """Returns the settings of a config that are in `FREE`."""
    return {key: dotted.lookup(key, values) for key in FREE}


def same_run(one: dict[str, object], other: dict[str, object]) -> bool:
    """Returns whether two configs differ only in settings of `FREE` and `PLACES`."""
    return _fixed(one) == _fixed(other)


def _fixed(values: dict[str, object], path: str = "") -> dict[str, object]:
    """Returns a config without the keys of `FREE` and `PLACES`. path: of `values`, ending with a dot."""
    fixed = {}
    for key, value in values.items():
        if f"{path}{key}" in (*FREE, *PLACES):
            continue
        if isinstance(value, dict):
            value = _fixed(value, f"{path}{key}.")
        fixed[key] = value
    return fixed
