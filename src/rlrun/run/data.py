"""The data files that a run reads: their digests, whether they have changed, and which ones a stored config may name.

A stored config may be untrusted. What it names is read only if it has the content that the run has recorded, and
downloaded only from where rlrun itself says that it is published.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from rlrun import data_files
from rlrun.config.schema import EnvConfig, RunConfig
from rlrun.config.sources import CONF
from rlrun.core.loop import Loop
from rlrun.datasets import folders
from rlrun.envs import downloads
from rlrun.envs.builtin.tables import SKLEARN
from rlrun.errors import ConfigError

OURS = "rlrun/"  # ids of environments that read tables begin so
TABLE, EVAL_TABLE = "env.kwargs.path", "env.eval_kwargs.path"
SHORT = 12  # hex digits of a digest that a message shows

Use = Literal["evaluate", "resume", "begin"]


def data_digests(loop: Loop) -> dict[str, str]:
    """SHA-256 of each file and data set that determines what a run learns, by the key that names it with its value:
    `env.kwargs.path=my.csv`."""
    return {**loop.env.digests, **loop.digests}


def data_changes(loop: Loop) -> list[str]:
    """A line for each data set that has changed since the run read it. One that is gone is not needed any more."""
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
    """The digest of the table that only evaluations read, where `env.eval_kwargs` names one. Raises ConfigError."""
    return {f"{key}={path}": _digest(key, path) for key, path in _tables(env) if key == EVAL_TABLE}


def check_stored_data(config: RunConfig, recorded: Any, use: Use, typed: bool = False) -> None:
    """Raises ConfigError where a stored config names data whose content is not the recorded one.

    recorded: what `data_digests` gave when the run was saved. use: an evaluation reads one table; a run that is resumed
    has the data sets in its buffer; one that begins reads everything. typed: the user typed the same config on this
    command line, so that data without a record may be read.
    """
    for key, place in _named(config, use):
        name = f"{key}={place}"
        then = None
        if isinstance(recorded, Mapping):
            then = recorded.get(name)
        if then is None and typed:
            continue
        if then is None:
            raise ConfigError(f"{name}: is not read, for the run has not recorded what it held; start a new run")
        now = _digest(key, place)
        if now != then:
            raise ConfigError(_changed(name, then, now))


def check_stored_sources(values: Mapping[str, Any]) -> None:
    """Raises ConfigError where a stored config names a download that rlrun does not name itself: such a config must not
    make this machine send requests. What the user has downloaded before may be read again from the cache."""
    env = values.get("env")
    if not isinstance(env, Mapping) or not _reads_tables(env.get("id")):
        return
    for section in ("kwargs", "eval_kwargs"):
        kwargs = env.get(section)
        if not isinstance(kwargs, Mapping):
            continue
        source = kwargs.get("source")
        if source is None or source in _published() or _is_cached(source):
            continue
        raise ConfigError(
            f"env.{section}.source={source}: a stored config cannot ask for this download; start a new run"
        )


def _named(config: RunConfig, use: Use) -> list[tuple[str, str]]:
    """Key and place of everything that a config has a run read."""
    tables = _tables(config.env)
    if use == "evaluate":
        return tables[-1:]
    if use == "begin":
        return tables + _data_sets(config.algo)
    return tables


def _tables(env: EnvConfig) -> list[tuple[str, str]]:
    """Keys and paths of the tables that an environment reads; that of evaluations last."""
    if not _reads_tables(env.id):
        return []
    paths = [(TABLE, env.kwargs.get("path")), (EVAL_TABLE, env.eval_kwargs.get("path"))]
    return [(key, path) for key, path in paths if isinstance(path, str) and not path.startswith(SKLEARN)]


def _data_sets(algo: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Keys and places of the data sets that a run reads when it begins."""
    loop = algo.get("loop") or {}
    buffer = algo.get("buffer") or {}
    data = loop.get("data")
    if not isinstance(data, list):
        data = [data]
    found = [("algo.loop.data", place) for place in data]
    found += [("algo.buffer.given", buffer.get("given")), ("algo.buffer.own", buffer.get("own"))]
    return [(key, place) for key, place in found if isinstance(place, str) and place]


def _digest(key: str, place: str) -> str:
    """The SHA-256 of what is there now. Raises ConfigError."""
    name = f"{key}={place}"
    if key not in (TABLE, EVAL_TABLE):
        return folders.digests(key, place)[name]
    try:
        return data_files.sha256(Path(place))
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None


def _changed(name: str, then: Any, now: str) -> str:
    return f"{name}: has changed since the run read it (SHA-256 {str(then)[:SHORT]}... then, {now[:SHORT]}... now)"


def _reads_tables(id: Any) -> bool:
    return isinstance(id, str) and id.rpartition(":")[2].startswith(OURS)


def _published() -> list[Any]:
    """Where the tables that rlrun names are published: {url, sha256} of each."""
    sources = []
    for path in sorted((CONF / "env").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "source:" in text:
            sources.append(yaml.safe_load(text)["kwargs"]["source"])
    return [source for source in sources if source]


def _is_cached(source: Any) -> bool:
    """Whether this file is in the user's cache already, so that no request would be sent."""
    try:
        downloads.check_source(**source)
    except (TypeError, ValueError):
        return False
    return downloads.cached(source["sha256"]).is_file()
