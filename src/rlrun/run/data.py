"""Digests of the data files that a run reads, and checks of the files that a stored config names.

A stored config may be untrusted. A file that it names is read only if its content is what the run has recorded, and
downloaded only from the addresses in rlrun's own YAML.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rlrun import data_files
from rlrun.config.reach import published
from rlrun.config.schema import RunConfig
from rlrun.core.loop import Loop
from rlrun.datasets import folders
from rlrun.envs.builtin.tables import LIMIT, SKLEARN
from rlrun.envs.config import EnvConfig
from rlrun.envs.making import downloads
from rlrun.errors import ConfigError

OURS = "rlrun/"  # prefix of ids of rlrun's own environments; no others read tables
TABLE, EVAL_TABLE = "env.kwargs.path", "env.eval_kwargs.path"
SHORT = 12  # number of hex digits of a digest in messages

Use = Literal["evaluate", "resume", "begin"]


def data_digests(loop: Loop) -> dict[str, str]:
    """Returns the SHA-256 of each file and data set that a run reads, by its setting: `env.kwargs.path=my.csv`."""
    return {**loop.env.digests, **loop.digests}


def data_changes(loop: Loop) -> list[str]:
    """Returns a line for each data set that has changed since the run read it.

    A data set that can no longer be read is not reported: its content cannot be compared, and the run has read it.
    """
    changes = []
    for name, then in loop.digests.items():
        key, _, place = name.partition("=")
        try:
            now = folders.digests(key, place)[name]
        except ConfigError:
            continue
        if now != then:
            changes.append(_changed(name, then, now))
    return changes


def evaluation_digests(env: EnvConfig) -> dict[str, str]:
    """Returns the digest of the table that `env.eval_kwargs` names, if any. Raises ConfigError if it cannot be read."""
    return {f"{key}={path}": _digest(key, path) for key, path in _tables(env) if key == EVAL_TABLE}


def check_stored_data(config: RunConfig, recorded: object, use: Use, typed: bool = False) -> None:
    """Raises ConfigError if a stored config names data whose content differs from the recorded digest.

    recorded: the result of `data_digests` when the run was saved.
    use: which data will be read. An evaluation reads one table. A resumed run reads the tables only, because its
    restored buffer already holds the data sets. A run that begins reads tables and data sets.
    typed: the user typed the same config on this command line, so data without a recorded digest may be read.
    """
    for key, place in _named(config, use):
        name = f"{key}={place}"
        then = None
        if isinstance(recorded, Mapping):
            then = recorded.get(name)
        if then is None and typed:
            continue
        if then is None:
            raise ConfigError(f"{name}: not read, because the run has not recorded its digest; start a new run")
        now = _digest(key, place)
        if now != then:
            raise ConfigError(_changed(name, then, now))


def check_stored_sources(values: Mapping[str, object]) -> None:
    """Raises ConfigError if a stored config names a download that is neither in rlrun's own YAML nor in the cache.

    Otherwise an untrusted config could make this machine send requests to any address.
    """
    env = values.get("env")
    if not isinstance(env, Mapping) or not _reads_tables(env.get("id")):
        return
    for section in ("kwargs", "eval_kwargs"):
        kwargs = env.get(section)
        if not isinstance(kwargs, Mapping):
            continue
        source = kwargs.get("source")
        if source is None or source in published():
            continue
        if _is_cached(source) and not kwargs.get("force_download"):
            continue
        raise ConfigError(
            f"env.{section}.source={source}: a stored config must not start this download; start a new run"
        )


def _named(config: RunConfig, use: Use) -> list[tuple[str, str]]:
    """Returns key and place of all data that this use of a config reads."""
    tables = _tables(config.env)
    if use == "evaluate":
        return tables[-1:]
    if use == "begin":
        return tables + _data_sets(config.algo)
    return tables


def _tables(env: EnvConfig) -> list[tuple[str, str]]:
    """Returns keys and paths of the tables that an environment reads; the table for evaluations is last."""
    if not _reads_tables(env.id):
        return []
    paths = [(TABLE, env.kwargs.get("path")), (EVAL_TABLE, env.eval_kwargs.get("path"))]
    return [(key, path) for key, path in paths if isinstance(path, str) and not path.startswith(SKLEARN)]


def _data_sets(algo: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns keys and places of the data sets that a run reads when it begins."""
    loop = algo.get("loop") or {}
    buffer = algo.get("buffer") or {}
    data = loop.get("data")
    if not isinstance(data, list):
        data = [data]
    found = [("algo.loop.data", place) for place in data]
    found += [("algo.buffer.given", buffer.get("given")), ("algo.buffer.own", buffer.get("own"))]
    return [(key, place) for key, place in found if isinstance(place, str) and place]


def _digest(key: str, place: str) -> str:
    """Returns the SHA-256 of the current content. Raises ConfigError if it cannot be read."""
    name = f"{key}={place}"
    if key not in (TABLE, EVAL_TABLE):
        return folders.digests(key, place)[name]
    try:
        return data_files.sha256(Path(place), most=LIMIT)
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None


def _changed(name: str, then: object, now: str) -> str:
    return f"{name}: has changed since the run read it (SHA-256 {str(then)[:SHORT]}... then, {now[:SHORT]}... now)"


def _reads_tables(id: object) -> bool:
    return isinstance(id, str) and id.rpartition(":")[2].startswith(OURS)


def _is_cached(source: Any) -> bool:
    """Returns whether the file is already in the user's cache, so that no request would be sent."""
    try:
        downloads.check_source(**source)
    except (TypeError, ValueError):
        return False
    return downloads.cached(source["sha256"]).is_file()
