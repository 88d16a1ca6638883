"""Writes configs as plain YAML, and reads them as untrusted data."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import files
from rlrun.errors import PROGRAM, ConfigError, quoted
from rlrun.formats import history
from rlrun.formats.numbers import HUGE

DEPTH = 64  # maximum nesting of lists and mappings
CONFIG, OVERRIDES = "config.yaml", "overrides.yaml"  # of a run
SWEEP = "sweep.yaml"  # of a sweep


def to_yaml(values: object) -> str:
    """Returns the YAML text of plain values, without aliases and with keys in their order."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)


class StoredConfig(NamedTuple):
    """A config.yaml, converted to the current format."""

    values: dict[str, Any]
    filled: list[str]  # settings that the conversion added, like `env.x=1`
    metrics_format: int  # the format whose metric keys the run writes


def config_text(values: dict[str, object], metrics_format: int | None = None) -> str:
    """Returns the text of a config.yaml. metrics_format: format of the run's metric keys; None: the current format."""
    head = {history.KEY: history.FORMAT}
    if metrics_format not in (None, history.FORMAT):
        head[history.METRICS_KEY] = metrics_format
    return to_yaml(head | values)


def read_config(path: Path) -> dict[str, Any]:
    """Returns the values of a config.yaml, in the current format. Raises ConfigError like `read_stored`."""
    return read_stored(path).values


def read_stored(path: Path) -> StoredConfig:
    """Returns the parsed config.yaml. Raises ConfigError like `parse_config`, or if the file cannot be read."""
    return parse_config(read_text(path), path)


def parse_config(text: str, path: Path) -> StoredConfig:
    """Parses a stored config, which may be untrusted.

    Raises ConfigError for `_target_`, environment variables and YAML aliases, and for anything but a mapping with names
    as keys. rlrun never writes aliases; a small file could use them to expand to gigabytes. path: for messages.
    """
    values = parse_yaml(text, path)
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: not a config (not a mapping)")
    faults = [f"{path}: {fault}" for fault in _forbidden(values, "")]
    if faults:
        raise ConfigError(*faults)
    try:
        upgraded, filled = history.upgraded(values)
        return StoredConfig(upgraded, filled, history.metrics_format(values))
    except ConfigError as error:
        raise ConfigError(*(f"{path}: {fault}" for fault in error.faults)) from None


def read_words(path: Path) -> list[str]:
    """Returns the words of an overrides.yaml, with which a run was started and resumed. Raises ConfigError."""
    return parse_words(read_text(path), path)


def parse_words(text: str, path: Path) -> list[str]:
    """Parses the text of an overrides.yaml. Raises ConfigError unless it is a list of words. path: for messages."""
    words = parse_yaml(text, path)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"{path}: must be a list of overrides, like - algo=sac")
    return words


def not_a_run(folder: Path, missing: str = CONFIG) -> str:
    """Returns what a folder is that lacks a file of a run, for messages. missing: the name of the file."""
    if not os.path.lexists(folder):
        return "no such folder"
    if os.path.isfile(folder / SWEEP):
        return f"a sweep, not a run; see {PROGRAM} sweep status {quoted(folder)}"
    return f"not a run (it has no {missing})"


def read_text(path: Path) -> str:
    """Returns the text of a run's config.yaml or overrides.yaml. Raises ConfigError if it cannot be read."""
    try:
        return files.read(path, files.CONFIG_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path.parent}: {not_a_run(path.parent, path.name)}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a config (not UTF-8)") from None


def parse_json(content: bytes, path: Path) -> dict[str, object]:
    """Parses a stored JSON object. Raises ConfigError if it is anything else or nested too deeply."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: not a JSON object")
    _check_limits(values, path)
    return values


def _check_limits(values: object, path: Path, depth: int = 0) -> None:
    """Raises ConfigError for values that are nested too deeply, and for integers that are too large to be shown."""
    if type(values) is int and abs(values) > HUGE:
        raise ConfigError(f"{path}: holds a whole number above {HUGE:g}")
    if depth > DEPTH:
        raise ConfigError(f"{path}: nested more than {DEPTH} levels deep")
    if isinstance(values, dict):
        values = [*values, *values.values()]
    if isinstance(values, list):
        for value in values:
            _check_limits(value, path, depth + 1)


def parse_yaml(text: str, path: Path, rules: type | None = None) -> Any:
    """Parses YAML of an untrusted file. Raises ConfigError if it has aliases or is nested too deeply.

    rules: the constructor and resolver of values; None: those of YAML 1.1.
    """
    import yaml

    try:
        values = _loaded(text, path, rules)
        _check_limits(values, path)
        return values
    except yaml.MarkedYAMLError as error:
        line = 1
        if error.problem_mark:
            line = error.problem_mark.line + 1
        raise ConfigError(f"{path}: not a config (line {line}: {error.problem})") from None
    # what PyYAML raises for values that do not fit their tags, such as `!!int x`, `!!bool x` and `!!timestamp x`
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a config ({' '.join(str(error).split())[:200]})") from None


def _loaded(text: str, path: Path, rules: type | None) -> object:
    """Returns the values of YAML. Raises ConfigError for aliases, and what PyYAML raises."""
    import yaml

    class NoAliases(yaml.composer.Composer):
        def compose_node(self, parent: object, index: int) -> object:
            if self.check_event(yaml.AliasEvent):  # type: ignore[attr-defined]
                raise ConfigError(f"{path}: aliases are not allowed")
            return super().compose_node(parent, index)

    own: tuple[type, ...] = ()
    if rules is not None:
        own = (rules,)
    if yaml.__with_libyaml__:

        class Fast(NoAliases, *own, yaml.CSafeLoader):  # type: ignore[misc]
            """Parses in C, six times faster, and composes in Python."""

            def __init__(self, stream: str):
                yaml.CSafeLoader.__init__(self, stream)
                NoAliases.__init__(self)

        with contextlib.suppress(yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError):
            return yaml.load(text, Fast)

    class Loader(NoAliases, *own, yaml.SafeLoader):  # type: ignore[misc]
        """Parses in Python; its errors say what was expected."""

    return yaml.load(text, Loader)


def _forbidden(values: object, path: str) -> list[str]:
    """Returns a line for each `_target_`, each key that is not a string, and each use of an environment variable."""
    faults = []
    if isinstance(values, dict):
        for key in values:
            if key == "_target_":
                faults.append(f"{path}{key}: not allowed in a stored config")
            elif not isinstance(key, str):
                faults.append(f"{path}{key}: a key must be a name")
    elif isinstance(values, list):
        values = dict(enumerate(values))
    elif isinstance(values, str) and "${oc.env" in values.replace(" ", ""):
        faults.append(f"{path.rstrip('.')}: environment variables are not allowed in a stored config")
    if isinstance(values, dict):
        for key, value in values.items():
            faults += _forbidden(value, f"{path}{key}.")
    return faults
