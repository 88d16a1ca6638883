"""What a run may change when it goes on, and which runs are the same run."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlrun.config import check
from rlrun.config.history import METRICS_KEY
from rlrun.config.stored import CONFIG, OVERRIDES, parse_config, parse_words, read_text
from rlrun.errors import ConfigError

PUT_IT_BACK = "put it back, or start a new run from its weights with init_from=RUN"

# they decide how long, where, and when to look; nothing that was learned depends on them
FREE = (
    "trainer.total_steps", "trainer.eval_every", "trainer.eval_episodes", "trainer.eval_max_steps",
    "trainer.log_every", "trainer.snapshot_every", "trainer.snapshot_keep",
    "trainer.snapshot_archive_every", "trainer.snapshot_on_failure", "trainer.engine", "trainer.threads",
    "device", "logger.console", "logger.tensorboard", "env.timeout_s", "env.on_failure", "env.selftest",
)  # fmt: skip
PLACES = ("run_dir", "resume", "plugins")


def news(values: dict[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """Those `words` that a stored config does not say already."""
    return {key: value for key, value in words.items() if check.lookup(key, values) != value}


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
        section, _, name = key.rpartition(".")
        home = check.lookup(section, values) if section else values
        if isinstance(home, dict):
            home[name] = value
        else:
            faults.append(f"{section}: missing")
    if faults:
        raise ConfigError(*faults)
    return values


class Recorded(NamedTuple):
    """The files that say what a run is, as text; every snapshot holds them."""

    config: str
    overrides: str

    @classmethod
    def read(cls, run: Path) -> "Recorded":
        """Raises ConfigError."""
        return cls(read_text(run / CONFIG), read_text(run / OVERRIDES))


def check_unchanged(run: Path, then: Recorded) -> None:
    """Raises ConfigError where a run's files say something else than when a snapshot was taken: one line for each key.

    Comments and the order of keys may differ. What `rlrun resume` changed since is in overrides.yaml.
    """
    now = Recorded.read(run)
    if now == then:
        return
    before, words = parse_words(then.overrides, run / OVERRIDES), parse_words(now.overrides, run / OVERRIDES)
    since = words[len(before) :]
    if words[: len(before)] != before:
        raise ConfigError(f"{run / OVERRIDES}: was edited: {_first_difference(before, words)}; {PUT_IT_BACK}")
    recorded, found = parse_config(then.config, run / CONFIG), parse_config(now.config, run / CONFIG)
    expected = changed(recorded.values, dict(map(setting, since))) | {METRICS_KEY: recorded.metrics_format}
    faults = [
        f"{run / CONFIG}: was edited: {key} {before} -> {after}; {PUT_IT_BACK}"
        for key, before, after in differences(expected, found.values | {METRICS_KEY: found.metrics_format})
    ]
    if faults:
        raise ConfigError(*faults)


def differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Keys in which two configs differ, with both values as one would type them; "-" where there is none."""
    left, right = dict(check.leaves(one)), dict(check.leaves(other))
    for key in dict.fromkeys([*left, *right]):
        before, after = left.get(key, check.ABSENT), right.get(key, check.ABSENT)
        if repr(before) != repr(after):  # 1 is not 1.0, nor true
            yield key, _shown(before), _shown(after)


def setting(word: str) -> tuple[str, Any]:
    """The key and the value of a typed word: numbers as one types them (`1e6` is whole), everything else as YAML."""
    key, _, text = word.partition("=")
    try:
        number = float(text)
    except ValueError:
        import yaml

        try:
            return key, yaml.safe_load(text)
        except yaml.YAMLError:
            return key, text
    return key, int(number) if number.is_integer() else number


def _shown(value: Any) -> str:
    return "-" if value is check.ABSENT else check.show(value)


def _first_difference(before: list[str], after: list[str]) -> str:
    place = next((place for place, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), len(after))
    return f"{before[place]} -> {after[place] if place < len(after) else '-'}"


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
