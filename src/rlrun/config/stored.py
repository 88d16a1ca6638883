"""Configs on disk: written as plain YAML, read as untrusted data."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import files
from rlrun.config import history
from rlrun.errors import ConfigError

DEPTH = 64  # of lists and mappings in each other
CONFIG, OVERRIDES = "config.yaml", "overrides.yaml"


def to_yaml(values: Any) -> str:
    """YAML text of plain values, with keys in their order and without aliases."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)


class StoredConfig(NamedTuple):
    """A config.yaml in today's format."""

    values: dict[str, Any]
    filled: list[str]  # what it lacked and was filled in, like `env.x=1`
    metrics_format: int  # the format whose metric keys the run writes


def config_text(values: dict[str, Any], metrics_format: int | None = None) -> str:
    """The text of a config.yaml. `metrics_format`: that of the run's metric keys; None: today's."""
    head = {history.KEY: history.FORMAT}
    if metrics_format not in (None, history.FORMAT):
        head[history.METRICS_KEY] = metrics_format
    return to_yaml(head | values)


def read_config(path: Path) -> dict[str, Any]:
    """The values of a config.yaml, in today's format. Raises ConfigError as `parse_config` does, and where it cannot be
    read."""
    return read_stored(path).values


def read_stored(path: Path) -> StoredConfig:
    """A config.yaml with what is known of its format. Raises ConfigError as `read_config` does."""
    return parse_config(read_text(path), path)


def parse_config(text: str, path: Path) -> StoredConfig:
    """A stored config, as untrusted data.

    It names registered parts and never code: ConfigError for `_target_`, environment variables, YAML aliases (a bomb
    needs them, we never write them), or anything but a mapping with names as keys. `path` is for messages.
    """
    values = _parse_yaml(text, path)
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: not a config (no mapping)")
    faults = [f"{path}: {fault}" for fault in _forbidden(values, "")]
    if faults:
        raise ConfigError(*faults)
    try:
        upgraded, filled = history.upgraded(values)
        return StoredConfig(upgraded, filled, history.metrics_format(values))
    except ConfigError as error:
        raise ConfigError(*(f"{path}: {fault}" for fault in error.faults)) from None


def read_words(path: Path) -> list[str]:
    """The words that a run was started with and changed by, from its overrides.yaml. Raises ConfigError."""
    return parse_words(read_text(path), path)


def parse_words(text: str, path: Path) -> list[str]:
    """The words in the text of an overrides.yaml. `path` is for messages."""
    words = _parse_yaml(text, path)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"{path}: must be a list of the words that were typed, like - algo=sac")
    return words


def read_text(path: Path) -> str:
    """The text of a stored file. Raises ConfigError."""
    try:
        return files.read(path, files.CONFIG_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path.parent}: not a run (it has no {path.name})") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a config (no text in UTF-8)") from None


def parse_json(content: bytes, path: Path) -> dict[str, Any]:
    """A stored JSON object. Raises ConfigError."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: not a JSON object")
    _check_depth(values, path)
    return values


def _check_depth(values: Any, path: Path, depth: int = 0) -> None:
    if depth > DEPTH:
        raise ConfigError(f"{path}: nested more than {DEPTH} deep")
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            _check_depth(value, path, depth + 1)


def _parse_yaml(text: str, path: Path) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ConfigError(f"{path}: aliases are not allowed")
            return super().compose_node(parent, index)

    try:
        values = yaml.load(text, Loader)
        _check_depth(values, path)
        return values
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a config ({' '.join(str(error).split())[:200]})") from None


def _forbidden(values: Any, path: str) -> list[str]:
    """Faults of a config that would reach outside: one line each."""
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
