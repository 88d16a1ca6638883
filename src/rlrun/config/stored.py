"""Configs on disk: written as plain YAML, read as the data of a stranger."""

from pathlib import Path
from typing import Any

from rlrun.errors import ConfigError

LIMIT = 128 << 10  # bytes; a config has a few thousand


def to_yaml(values: Any) -> str:
    """Keys in their order, nothing by reference."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def read_config(path: Path) -> dict[str, Any]:
    """A stored config. It names registered parts and never code: ConfigError for `_target_`, environment variables,
    YAML aliases (a bomb needs them, we never write them), more than LIMIT bytes, or anything but a mapping."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ConfigError(f"{path}: aliases are not allowed")
            return super().compose_node(parent, index)

    try:
        with open(path, "rb") as file:
            text = file.read(LIMIT + 1)
        if len(text) > LIMIT:
            raise ConfigError(f"{path}: larger than {LIMIT} bytes")
        values = yaml.load(text, Loader)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path.parent}: not a run (it has no {path.name})") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a config ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: not a config (no mapping)")
    faults = [f"{path}: {fault}" for fault in _forbidden(values, "")]
    if faults:
        raise ConfigError(*faults)
    return values


def typed_words(path: Path) -> list[str]:
    """What an overrides.yaml lists, read as text, as a stranger's; nothing where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(LIMIT).splitlines()
    except OSError:
        return []
    return [line.removeprefix("- ").strip("'\"") for line in lines if line.startswith("- ")]


def _forbidden(values: Any, path: str) -> list[str]:
    """Faults of a config that would reach outside: one line each."""
    if isinstance(values, dict):
        faults = [f"{path}{key}: not allowed in a stored config" for key in values if key == "_target_"]
        return faults + [fault for key, value in values.items() for fault in _forbidden(value, f"{path}{key}.")]
    if isinstance(values, list):
        return [fault for index, value in enumerate(values) for fault in _forbidden(value, f"{path}{index}.")]
    if isinstance(values, str) and "${oc.env" in values.replace(" ", ""):
        return [f"{path.rstrip('.')}: environment variables are not allowed in a stored config"]
    return []
