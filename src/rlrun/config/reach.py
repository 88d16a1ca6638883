"""The settings with which a config reaches outside of its run: code, files, windows and addresses.

An untrusted file with such a setting is refused unless the user types the setting too.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rlrun.config import loggers
from rlrun.config.sources import CONF, content
from rlrun.dotted import ABSENT, leaves, lookup, show
from rlrun.errors import ConfigError, quoted
from rlrun.imports import module_of

CODE = "imports code"
DATA = ("algo.loop.data", "algo.buffer.given", "algo.buffer.own", "algo.buffer.supplementary", "algo.buffer.save_to")
ADDRESSES = ("cluster.address", "env.ray.address")  # of clusters of Ray
OWN_CLUSTERS = ("auto", "local")  # addresses of clusters that the user has started, or that the run starts
ARGUMENTS = ("env.kwargs", "env.eval_kwargs", "env.wrappers")  # sections that go to the code of an environment


class Reach(NamedTuple):
    """A setting with which a config reaches outside of its run."""

    key: str
    value: Any
    effect: str  # what it does, as a verb: "imports code"

    @property
    def word(self) -> str:
        """The setting as the user types it."""
        return f"{self.key}={show(self.value)}"

    @property
    def line(self) -> str:
        """What is wrong with the setting if the user has not typed it."""
        return f"{self.key}: {self.effect}; if you trust it, add {quoted(self.word)}"


def reaches(values: Mapping[str, Any]) -> Iterator[Reach]:
    """Yields the settings of a composed config that reach outside of the run."""
    from rlrun.settings import registry  # imports pydantic, which takes long

    tree = dict(values)
    if values.get("plugins"):
        yield Reach("plugins", values["plugins"], CODE)
    id = lookup("env.id", tree)
    if isinstance(id, str) and module_of(id) is not None:
        yield Reach("env", id, CODE)
    if values.get("init_from") is not None:
        yield Reach("init_from", values["init_from"], "reads weights from files")
    for key in DATA:
        if lookup(key, tree) not in (ABSENT, None):
            yield Reach(key, lookup(key, tree), "reads or writes data sets")
    for key in ADDRESSES:
        if lookup(key, tree) not in (ABSENT, *OWN_CLUSTERS):
            yield Reach(key, lookup(key, tree), "connects to a Ray cluster, which can run code in this process")
    chosen = values.get("logger") or {}
    own = registry.names("logger")  # a logger of a plug-in that is not loaded may send data too
    senders = [name for name in chosen if not (name in own and registry.lookup("logger", name).local)]
    if senders:
        yield Reach("logger", [*chosen], "sends data out of the run's folder")
    for name in senders:
        yield from of_logger(name, chosen[name])
    for section in ARGUMENTS:
        arguments = lookup(section, tree)
        if isinstance(arguments, dict):
            given = dict(arguments)
            if given.get("source") and given["source"] in published():
                del given["source"]
            yield from of_arguments(section, given)


def of_logger(name: str, settings: Mapping[str, object]) -> Iterator[Reach]:
    """Yields the settings of a logger that are not its defaults: they may say where data is sent, and which."""
    before: Mapping[str, object] = {}
    with contextlib.suppress(ConfigError):  # a logger of a plug-in that the user has not named
        before = loggers.defaults(name)
    for key, value in leaves(dict(settings)):
        if lookup(key, before) != value:
            yield Reach(f"{loggers.SECTION}.{name}.{key}", value, "says where a logger sends data, or which data")


def published() -> list[dict[str, str]]:
    """Returns the downloads in rlrun's own YAML: {url, sha256} of each."""
    pages = [content(path) for path in (CONF / "env").glob("*.yaml")]
    sources = [page.get("kwargs", {}).get("source") for page in pages]
    return [source for source in sources if source]


def of_arguments(section: str, arguments: dict[str, object]) -> Iterator[Reach]:
    """Yields the arguments of an environment or a wrapper that name a file or a module, or open a window."""
    for key, value in leaves(arguments):
        if key == "render_mode" and value == "human":
            yield Reach(f"{section}.{key}", value, "opens a window")
        elif "/" in key or any(map(names_file, texts(value))):
            yield Reach(f"{section}.{key}", value, "names a file, which the environment may read")
        elif any(map(names_module, texts(value))):
            yield Reach(f"{section}.{key}", value, "names a module, which the environment may import")


def names_module(text: str) -> bool:
    """Returns whether a text could be the id of an environment in a module, `module:Id`."""
    module = module_of(text)
    return module is not None and all(map(str.isidentifier, module.split(".")))


def texts(value: object) -> Iterator[str]:
    """Yields every string in a value of a config, including the keys of dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, dict):
        yield from texts([*value, *value.values()])


def names_file(text: str) -> bool:
    """Returns whether a text could be the path of a file: it contains a separator, or a file of this name exists."""
    if "/" in text or os.sep in text or text.startswith("~"):
        return True
    with contextlib.suppress(ValueError):  # raised for a null character
        return os.path.lexists(text)
    return False
