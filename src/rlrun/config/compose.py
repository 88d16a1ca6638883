"""All uses of Hydra: its search path, override grammar, composition and sweeps. No other module imports Hydra."""

import contextlib
import copy
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import GroupDefault, InputDefault, ResultDefault
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlrun.config import check, declared, effects, loggers, preset_files, sources
from rlrun.config.declared import Declared
from rlrun.errors import ConfigError
from rlrun.imports import is_path, module_of

PRIMARY = "pkg://rlrun.conf"
LAUNCHERS = {  # prefix of a choice, and the Hydra package that provides it
    "hydra/launcher=submitit": "hydra-submitit-launcher",
    "hydra/launcher=joblib": "hydra-joblib-launcher",
    "hydra/launcher=ray": "hydra-ray-launcher",
    "hydra/launcher=rq": "hydra-rq-launcher",
}
NOT_OVERRIDABLE = re.compile(r"In '(?P<file>[^']+)': Could not override '(?P<part>[^']+)'")  # in a message of Hydra
NOT_FOUND = re.compile(r"Could not find '(?P<group>[^']+)/(?P<name>[^'/]+)'")  # in a message of Hydra
PLAIN = re.compile(r"[A-Za-z_/][\w./:-]*", re.ASCII)  # text that needs no quotes, unless it is one of KEYWORDS
KEYWORDS = ("true", "false", "null", "inf", "nan")
NO_PRESET = "none"
NO_ALGO, NO_ENV = "_none", "_base"  # the defaults in train.yaml, which every run must replace


class Content(NamedTuple):
    """What a file of a `conf` folder holds, or would hold if it was written."""

    values: dict[str, Any]
    package: str | None  # the section that it sets; None: that of its group


class OwnFiles(FileConfigSource):
    """Provides rlrun's own files."""

    @staticmethod
    def scheme() -> str:
        return "own"

    def content(self, path: str) -> Content:
        """Returns the content of a file. path: below the folder, with or without its ending."""
        file = Path(self.path, self._normalize_file_name(path))
        return Content(sources.content(file) or {}, _package(file))

    def load_config(self, config_path: str) -> ConfigResult:
        return _result(self, config_path)


class UserFiles(OwnFiles):
    """Provides the files of a folder of the user: the conf folder of a plug-in, or a folder of `--config-dir`."""

    @staticmethod
    def scheme() -> str:
        return "user"

    def content(self, path: str) -> Content:
        return _user_file(Path(self.path, self._normalize_file_name(path)), path.removesuffix(".yaml"))


def _result(source: "OwnFiles | UnwrittenNames", config_path: str) -> ConfigResult:
    """Returns the content of a file as Hydra reads it."""
    values, package = source.content(config_path)
    return ConfigResult(source.provider, source.full_path(), OmegaConf.create(values), {"package": package})


def _user_file(file: Path, path: str) -> Content:
    """Returns the content of a user's YAML file. A preset or an algorithm sets keys of the whole config, whatever its
    first line says. Raises ConfigError if the file is no YAML mapping, or holds other values than a config may.

    path: the path below `conf` that Hydra asks for, without its ending.
    """
    values = sources.content(file) or {}
    if not isinstance(values, dict):
        raise ConfigError(f"{sources.label(file)}: must be a mapping of config keys to values")
    if sources.is_empty(values):
        raise ConfigError(f"{sources.label(file)}: sets nothing")
    if not isinstance(values.get("defaults", []), list):
        raise ConfigError(f"{sources.label(file)}: defaults: must be a list")
    if faults := [f"{sources.label(file)}: {fault}" for fault in check.not_plain(values)]:
        raise ConfigError(*faults)
    if sources.is_whole(path):
        return Content(values, "_global_")
    return Content(values, _package(file))


def _package(file: Path) -> str | None:
    try:
        return ConfigSource._get_header_dict(file.read_text(encoding="utf-8"))["package"]
    except ValueError as error:
        raise ConfigError(f"{sources.label(file)}: {error}") from None


class UnwrittenNames(ConfigSource):
    """Provides configs for names without a YAML file.

    These are any Gymnasium id, a preset named with its environment's full id instead of the alias, parts in a Python
    file of a plug-in, and `_none` as the algorithm. This source is last in the search path, so files take precedence.
    environments.py checks that a Gymnasium id exists.
    """

    @staticmethod
    def scheme() -> str:
        return "unwritten"

    def load_config(self, config_path: str) -> ConfigResult:
        return _result(self, config_path)

    def content(self, path: str) -> Content:
        """Returns the content that the file of a name would have. path: below `conf`."""
        part = self._part(path)
        if part is not None:
            return self._of_part(part, path.removesuffix(".yaml"))
        group, _, name = path.partition("/")
        if group == "env":
            base = "_atari" if "ALE/" in name else "_base"
            return Content({"defaults": [base, "_self_"], "id": name}, None)
        values: dict[str, Any] = {}
        if group == "preset" and sources.is_preset_path(name):
            values = preset_files.read(name, self.folders)
        elif group == "preset":
            values = self._preset(name)
        return Content(values, "_global_")

    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.partition("/")
        if group == "env":
            return bool(name) and not name.startswith("_")
        if group == "preset":
            return sources.is_preset_path(name) or preset_file(name, self.folders) not in (None, name)
        return (group, name) == ("algo", NO_ALGO) or self._part(config_path) is not None

    def _preset(self, name: str) -> dict[str, Any]:
        """Returns the preset that a name without a file stands for.

        If the user's algorithm takes it over from another, its own values stand above those of the preset.
        """
        derived = sources.base_preset(name, self.folders)
        if derived is None:
            return {"defaults": [preset_file(name, self.folders)]}
        file, base = derived
        return sources.content(file) | {"defaults": [base, "_self_"]}

    def _part(self, path: str) -> Declared | None:
        group, _, name = path.removesuffix(".yaml").rpartition("/")
        return declared.find(group, name, sources.python_files(self.folders))

    def _of_part(self, part: Declared, path: str) -> Content:
        """Returns the content of the YAML file beside the file of a part, or the defaults of its Config."""
        package = "_global_" if part.group == "algo" else None
        if part.page is not None:
            values, _ = _user_file(part.page, path)
            if part.name_key and check.lookup(part.name_key, values) in (check.ABSENT, None):
                _set(values, part.name_key, part.name)
            return Content(values, package)
        values = {"name": part.name, **part.values()}
        if part.group == "network":
            values |= {"actor": {}, "critic": {}}  # keys that differ in the networks of these roles
        if part.group == "algo":
            values = _algorithm(part, values, self.folders)
        if part.group == loggers.SECTION:
            values = {part.name: part.values()}
        return Content(values, package)

    def is_group(self, config_path: str) -> bool:
        return config_path == "env"

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return []

    def available(self) -> bool:
        return True

    @property
    def folders(self) -> Sequence[Path]:
        """The conf folders, listed in the path of this source."""
        return list(map(Path, self.path.split(os.pathsep)))


class SearchPath(SearchPathPlugin):
    """Adds the folders of plug-ins to Hydra's search path, after rlrun's own.

    Hydra creates the instances without arguments, so the folders are a class attribute.
    """

    folders: Sequence[Path] = (sources.CONF,)

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in self.folders[1:]:
            if folder.is_dir():
                search_path.append("plugin", f"user://{folder}")
        search_path.append("rlrun", _unwritten(self.folders))


def _unwritten(folders: Sequence[Path]) -> str:
    return "unwritten://" + os.pathsep.join(map(str, folders))


def _algorithm(part: Declared, values: dict[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """Returns what the YAML file of an algorithm would hold, with the parts that its class attributes choose.

    Raises ConfigError for an unknown part, or for keys that the part does not have.
    """
    around = part.around()
    faults: list[str] = []
    for section, settings in around.items():
        name, place = settings["name"], f"{part.file.name}: {section}"
        known = sources.options(f"algo.{section}", folders)
        faults += _unknown([name], "name", known, place)
        if name in known:
            faults += _unknown(settings, "key", sources.own_keys(f"algo/{section}/{name}", folders), place)
    if faults:
        raise ConfigError(*faults)
    chosen = [{f"{section}@algo.{section}": settings.pop("name")} for section, settings in around.items()]
    return {"defaults": ["_parts", *chosen, "_self_"], "algo": values | around}


def _unknown(words: Iterable[str], kind: str, known: Iterable[str], place: str) -> Iterator[str]:
    """Yields a fault for each word that is not known."""
    for word in words:
        if word not in known:
            near = check.nearest(word, known)
            yield f"{place}: {word}: unknown {kind}{near} (there are: {', '.join(sorted(known))})"


def preset_file(name: str | None, where: Sequence[Path]) -> str | None:
    """Returns the preset of this name, or None if there is no such preset.

    A name that ends in an environment's full id, such as sac-Pendulum-v1, gives the preset with the alias,
    sac-Pendulum. An algorithm of the user that derives from another has the presets of that one.
    """
    presets = sources.options("preset", where)
    if not name or name in presets or sources.is_preset_path(name):
        return name or None
    for alias, file in sources.options("env", where).items():
        algo = name.removesuffix(f"-{sources.env_id(file)}")
        if algo != name and f"{algo}-{alias}" in presets:
            return f"{algo}-{alias}"
    derived = sources.base_preset(name, where)
    if derived is None:
        return None
    return preset_file(derived[1], where)


@dataclass(frozen=True)
class Word:
    """One parsed command-line override. `values` has several elements in a sweep, and none if a sweeper draws them."""

    text: str
    key: str
    raw: str  # text after the `=`
    values: tuple[Any, ...]
    is_group: bool
    is_hydra: bool
    is_sweep: bool
    is_deletion: bool

    @property
    def section(self) -> str:
        """The first part of the dotted key."""
        return self.key.partition(".")[0]

    @property
    def is_part(self) -> bool:
        """Whether the word chooses a part inside another choice, as `algo.buffer=prioritized` does."""
        return self.is_group and "." in self.key

    @property
    def for_hydra(self) -> str:
        """The word in Hydra's form: a setting becomes `++key=value`, which may also add a key."""
        if self.is_part:
            return choice(self.key, self.raw)
        if self.is_group or self.is_hydra or self.is_deletion:
            return self.text
        return f"++{self.key}={self.raw}"


def choice(group: str, name: str) -> str:
    """Returns a group choice in Hydra's form: the group of a part is a folder, so dots become slashes."""
    return f"{group.replace('.', '/')}={name}"


def literal(value: Any) -> str:
    """Returns a plain value as text that Hydra's grammar reads as the same value. Text is quoted unless it is a plain
    word, so that no letter in it has a meaning."""
    if isinstance(value, list):
        return "[" + ",".join(map(literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{literal(item)}" for key, item in value.items()) + "}"
    if not isinstance(value, str) or (PLAIN.fullmatch(value) and value.lower() not in KEYWORDS):
        return check.show(value)
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)  # backslashes are letters, unless a quote follows them
    escaped = re.sub(r"(\\+)\Z", r"\1\1", escaped)
    return f"'{escaped}'"


def as_typed(word: str) -> str:
    """Returns a word as the user typed it, from Hydra's form."""
    key, _, value = word.removeprefix("++").partition("=")
    return f"{key.replace('/', '.')}={value}"


@dataclass(frozen=True)
class Part:
    """One file of a composition."""

    path: str  # `algo/loop/offpolicy`
    package: str  # `algo.loop`


@dataclass(frozen=True)
class Composition:
    """A config composed from group choices only, before single settings are applied."""

    tree: dict[str, Any]
    choices: dict[str, Any]
    folders: Sequence[Path]
    files: Sequence[ResultDefault]  # what was merged; later files override earlier ones

    def values(self, words: Iterable[Word] = ()) -> dict[str, Any]:
        """Returns the config as plain values, with the words applied and interpolations resolved."""
        values = copy.deepcopy(self.tree)
        for word in words:
            section, _, name = word.key.rpartition(".")
            if word.is_deletion:
                del check.lookup(section, values)[name]
            else:
                _set(values, word.key, check.fitted(word.values[0], check.lookup(word.key, self.tree)))
        return _settle(values, self.choices, self.folders)


class Files(ConfigRepository):
    """The files of `conf` folders, as Hydra asks for them, without those of Hydra itself.

    Reads each one once; rlrun's own, which do not change while it runs, once in a process.
    """

    shipped: ClassVar[dict[str, ConfigResult]] = {}

    def __init__(self, folders: Sequence[Path]):
        users = [UserFiles("plugin", f"user://{folder}") for folder in folders[1:] if folder.is_dir()]
        unwritten = UnwrittenNames("rlrun", _unwritten(folders))
        self.sources = [OwnFiles("rlrun", f"own://{sources.CONF}"), *users, unwritten]
        self.others: dict[str, ConfigResult] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        known = self.shipped.get(config_path) or self.others.get(config_path)
        if known is not None:
            return known
        source: Any = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None:
            return None
        values, package = source.content(config_path)
        defaults = self._defaults(config_path, values.pop("defaults", []))
        found = ConfigResult(source.provider, source.full_path(), values, {"package": package}, defaults)
        read = self.shipped if source is self.sources[0] else self.others
        read[config_path] = found
        return found

    def _defaults(self, config_path: str, listed: list[Any]) -> list[InputDefault]:
        try:
            defaults = self._create_defaults_list(config_path, OmegaConf.create(listed))
        except ValueError as error:
            raise ConfigError(_one_line(error)) from None
        return [entry for entry in defaults if not _is_of_hydra(entry)]

    def merged(self, parts: Iterable[ResultDefault]) -> dict[str, Any]:
        """Returns the config of some files of a composition, of which later ones override earlier ones."""
        tree: dict[str, Any] = {}
        for part in parts:
            file = self.load_config(f"{part.config_path}")
            assert file is not None
            values: Any = file.config
            for name in reversed((part.package or "").split(".")):
                if name:
                    values = {name: values}
            _merge(tree, values, tree)
        return tree


def _is_of_hydra(entry: InputDefault) -> bool:
    """Returns whether an entry of a list of defaults chooses a part of Hydra's own config."""
    return isinstance(entry, GroupDefault) and f"{entry.group}".startswith("hydra/")


class Composer:
    """Parses words and composes configs with Hydra, over the given conf folders."""

    def __init__(self, folders: Sequence[Path]):
        self.folders = folders
        SearchPath.folders = folders
        setup_globals()
        hydra.version.setbase("1.3")
        for plugin in (UserFiles, UnwrittenNames, SearchPath):
            Plugins.instance().register(plugin)
        self._loader = ConfigLoaderImpl(create_config_search_path(PRIMARY))
        self._parser = OverridesParser.create(config_loader=self._loader)
        self._files = Files(folders)
        self._words: dict[str, Word] = {}
        self._known: dict[tuple[str, ...], Composition] = {}

    @classmethod
    def of(cls, words: Sequence[str], config_dirs: Iterable[str] = ()) -> "Composer":
        """Returns a composer over the conf folders of rlrun, of the plug-ins among the words, and `config_dirs`."""
        return cls(sources.folders(sources.named_plugins(words), config_dirs))

    def read(self, text: str) -> Word:
        """Parses one override. Raises ConfigError if it is malformed."""
        if text not in self._words:
            self._words[text] = self._read(text)
        return self._words[text]

    def _read(self, text: str) -> Word:
        key, equals, value = text.partition("=")
        text = check.full_key(key, value) + equals + value
        try:
            override = self._parser.parse_overrides([text])[0]
            elements = _elements(override)
        except (HydraException, ValueError) as error:
            raise ConfigError(f"cannot read {text!r}: {self._advice(text, error)}") from None
        group, known = override.key_or_group, self._loader.repository.group_exists
        part = known(group.replace(".", "/")) and all(isinstance(value, str) for value in elements)
        return Word(
            text=text,
            key=group,
            raw=text.partition("=")[2],
            values=elements,
            is_group=override.package is not None or known(group) or part,
            is_hydra=override.is_hydra_override(),
            is_sweep=override.is_sweep_override(),
            is_deletion=override.is_delete(),
        )

    def hydra_fault(self, word: Word) -> str | None:
        """Returns the fault of a choice that does not exist in Hydra's own groups, or None if it exists.

        A launcher that is not installed is such a fault.
        """
        if not word.is_group:
            return None
        known = self._loader.get_group_options(word.key)
        if set(word.values) <= set(known):
            return None
        for choice, package in LAUNCHERS.items():
            if word.text.startswith(choice):
                return f"{word.text}: is not installed; pip install {package}"
        return f"{word.text}: unknown name (there are: {', '.join(known)})"

    def expand(self, words: Sequence[str]) -> list[list[str]]:
        """Returns the words of every job of a sweep, in Hydra's order; without a sweep, one job with all words."""
        if not any(self.read(word).is_sweep for word in words):
            return [list(words)]
        overrides = self._parser.parse_overrides(list(words))
        discrete = [override for override in overrides if not _is_drawn(override)]
        return [list(job) for job in BasicSweeper.split_arguments(discrete, None)[0]]

    def compose(self, choices: Sequence[str]) -> Composition:
        """Composes `train.yaml` with group choices only.

        Raises ConfigError if Hydra cannot compose the files, or if a user's file has no effect.
        """
        key = tuple(choices)
        if key not in self._known:
            found = self._composed(choices)
            if faults := [*self._without_effect(found)]:
                raise ConfigError(*faults)
            self._known[key] = found
        return self._known[key]

    def _composed(self, choices: Sequence[str]) -> Composition:
        try:
            found = self._defaults(choices)
        except HydraException as error:
            fault = self._lacking_part(choices, error) or self._unknown_name(error)
            raise ConfigError(fault or _one_line(error)) from None
        chosen = found.overrides.known_choices
        tree = self._files.merged(found.defaults)
        _empty(tree, chosen, self.folders)
        return self._composition(tree, chosen, found.defaults)

    def _composition(self, tree: dict[str, Any], chosen: dict[str, Any], files: Sequence[ResultDefault]) -> Composition:
        tree.pop("hydra", None)
        _forget(tree, chosen, self.folders)
        return Composition(tree, chosen, self.folders, files)

    def _without_effect(self, found: Composition) -> Iterator[str]:
        """Yields the faults of the user's files in the last composition: names, keys and values that have no effect."""
        for group, name in found.choices.items():
            yield from effects.name_faults(group, name, found.tree, self.folders)
        yield from effects.unused_pages(self.folders)
        yield from effects.unused_environment_page(found.tree)
        preset = preset_file(found.choices.get("preset"), self.folders)
        if sources.users_file(f"preset/{preset}", self.folders):
            yield from self._file_faults(f"preset/{preset}", found, effects.preset_faults)
        algo = found.choices["algo"]
        if sources.users_file(f"algo/{algo}", self.folders):  # alone, because other choices may replace its parts
            alone = self._composed([choice("algo", algo), choice("preset", NO_PRESET)])
            yield from effects.class_faults(algo, alone.tree, self.folders)
            yield from self._file_faults(f"algo/{algo}", alone, effects.algorithm_faults)

    def _file_faults(self, chosen: str, found: Composition, faults: effects.Check) -> Iterator[str]:
        """Yields the faults of a user's preset or algorithm, and of the user's files on which it is based.

        Each file is compared with the composition of all others.
        """
        group = chosen.partition("/")[0]
        parts = found.files
        for place, part in enumerate(parts):
            path = f"{part.config_path}"
            file = sources.users_file(path, self.folders)
            if file is None or not path.startswith(f"{group}/") or not sources.is_whole(path):
                continue
            others = [other for other in parts if other is not part]
            tree = self._composition(self._files.merged(others), found.choices, others).tree
            values = self._files.merged([part])
            found_faults = [*check.refused(values)] or [*faults(values, tree)]
            if path == chosen:
                later = [other for other in parts[place + 1 :] if f"{other.config_path}".startswith(f"{group}/")]
                found_faults += effects.replaced(values, self._files.merged(later))
            yield from (f"{sources.label(file)}: {fault}" for fault in found_faults)

    def parts(self, choices: Sequence[str]) -> list[Part]:
        """Returns the files that `compose(choices)` merges, without Hydra's own. Later files override earlier ones."""
        parts = []
        for file in self.compose(choices).files:
            if file.config_path and not file.config_path.startswith("hydra/"):
                parts.append(Part(file.config_path, file.package or ""))
        return parts

    def _defaults(self, choices: Sequence[str]) -> DefaultsList:
        """Returns the files that `train.yaml` and the choices merge. Raises HydraException."""
        overrides = self._parser.parse_overrides(list(choices))
        return create_defaults_list(self._files, "train", overrides, prepend_hydra=False, skip_missing=False)

    def _lacking_part(self, choices: Sequence[str], error: Exception) -> str | None:
        """Returns the fault of a file that sets a part which the choice of another group lacks; None for other errors.

        An example is an algorithm that sets `network.norm` if the chosen network has no such part.
        """
        found = NOT_OVERRIDABLE.search(str(error))
        if found is None:
            return None
        part = found["part"].replace("/", ".")
        chooser = found["file"].replace("/", "=", 1)
        group = part.partition(".")[0]
        chosen = ""
        others = list(choices)
        for word in choices:
            if word.startswith(f"{group}="):
                chosen = word
                others.remove(word)
        fitting = []
        for name in sources.options(group, self.folders):
            with contextlib.suppress(HydraException):
                self._defaults([*others, choice(group, name)])
                fitting.append(name)
        line = f"{chosen or group}: has no part {part}, which {chooser} sets"
        return f"{line}; {group} may be {', '.join(fitting)}"

    def _unknown_name(self, error: Exception) -> str | None:
        """Returns the fault of a file that chooses a name which does not exist, or None for other errors.

        An example is the preset of a sweep over a network of the user's, whose file was not typed again.
        """
        found = NOT_FOUND.search(str(error))
        if found is None:
            return None
        group = found["group"].replace("/", ".")
        names = ", ".join(sources.options(group, self.folders))
        return f"{group}={found['name']}: unknown name (there are: {names}); if it is yours, add plugins=[FILE]"

    def _advice(self, text: str, error: Exception) -> str:
        key, is_pair, value = text.partition("=")
        if is_pair and value.startswith(("[", "{", "'", '"')):
            return _one_line(error)
        if is_pair:
            return f'put text with such characters in quotes: "{key}={literal(value)}"'
        for group, names in sources.groups(self.folders).items():
            if text in names:
                return f"write key=value; did you mean {group}={text}?"
        return "write key=value"


def hand_over(words: Sequence[str], flags: Sequence[str], job: Callable[[dict[str, Any], list[str]], None]) -> None:
    """Runs Hydra's main function, for sweeps with its launchers and for its own options (`--info`, `--cfg all`).

    `job(values, words)` is called for each job of a sweep, in the process that the launcher chooses.
    """
    folders = SearchPath.folders

    def task(config: DictConfig) -> None:
        runtime = HydraConfig.get()
        typed = list(map(as_typed, runtime.overrides.task))
        choices = dict(runtime.runtime.choices)
        tree = _container(config, resolve=False)
        _empty(tree, choices, folders, typed)
        _forget(tree, choices, folders)
        job(_settle(tree, choices, folders), typed)

    before = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["rlrun", *flags, *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise an error instead of printing it and exiting
    try:
        hydra.main(version_base="1.3", config_path=PRIMARY, config_name="train")(task)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from None
    finally:
        sys.argv = before[0]
        os.environ.pop("HYDRA_FULL_ERROR")
        if before[1] is not None:
            os.environ["HYDRA_FULL_ERROR"] = before[1]


def _merge(tree: dict[str, Any], values: dict[str, Any], root: dict[str, Any]) -> None:
    """Merges values into a tree, section by section; the values override. `???` overrides nothing.

    root: the tree in which a section may be a reference to another, which is copied before it is merged.
    """
    for key, value in values.items():
        known = _referred(tree.get(key), root)
        if isinstance(known, dict) and isinstance(value, dict):
            tree[key] = known
            _merge(known, value, root)
        elif value != check.MISSING or key not in tree:
            tree[key] = copy.deepcopy(value)


def _referred(value: Any, root: dict[str, Any]) -> Any:
    """Returns a copy of the section that a value refers to, as `${env.kwargs}` does, or the value itself."""
    if isinstance(value, str) and (reference := check.REFERENCE.fullmatch(value)):
        return copy.deepcopy(check.lookup(reference[1], root))
    return value


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    """Sets a value of a config. A section is merged with the present one; {} empties it. Raises ConfigError if the key
    lies in a list."""
    *sections, name = key.split(".")
    home = tree
    for place, section in enumerate(sections):
        inner = _referred(home.get(section), tree)
        if isinstance(inner, list):
            whole = ".".join(sections[: place + 1])
            raise ConfigError(f"{key}: {whole} is a list; set the whole list, as in {whole}={check.show(inner)}")
        home[section] = inner if isinstance(inner, dict) else {}
        home = home[section]
    if value == {}:
        home[name] = {}
    else:
        _merge(home, {name: value}, tree)


def _empty(tree: dict[str, Any], choices: dict[str, Any], folders: Sequence[Path], words: Sequence[str] = ()) -> None:
    """Empties the sections that the user's preset or the words set to {}, because a merge with {} changes nothing.

    words: settings that the config has already.
    """
    typed = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    file = sources.users_file(f"preset/{preset_file(choices.get('preset'), folders)}", folders)
    own = {} if file is None else dict(check.leaves(sources.content(file)))
    for key, value in own.items():
        if value == {} and not any(word == key or word.startswith(f"{key}.") for word in typed):
            _set(tree, key, {})
    for key, text in typed.items():
        if text == "{}":
            _set(tree, key, {})


def _forget(tree: dict[str, Any], choices: dict[str, Any], folders: Sequence[Path]) -> None:
    """Removes keys that the chosen parts do not have.

    Such keys remain if an algorithm or preset sets keys of its default part, but the user chooses another part.
    """
    for group, name in choices.items():
        section = check.lookup(group.replace("/", "."), tree)
        if "/" in group and isinstance(section, dict):
            for key in set(section) - sources.own_keys(f"{group}/{name}", folders):
                del section[key]


def _settle(values: dict[str, Any], choices: dict[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """Returns plain values with interpolations resolved, and with `name` and `preset` set from the choices.

    Raises ConfigError for values that `check.refused` does not allow, or if an interpolation cannot be resolved.
    """
    if unsafe := list(check.refused(values)):
        raise ConfigError(*unsafe)
    if check.refers(values):
        if check.expands(values):
            raise ConfigError("the values that ${...} refers to are too large; write the values themselves")
        try:
            values = _container(OmegaConf.create(values), resolve=True)
        except OmegaConfBaseException as error:
            raise ConfigError(_one_line(error)) from None
    chosen = choices.get("preset")
    if choices["algo"] == NO_ALGO:  # as in `rlrun show env=CartPole`
        del values["algo"]
    values["preset"] = None
    values["logger"] = loggers.switched(values["logger"])
    if chosen != NO_PRESET:
        values["preset"] = preset_file(chosen, folders)
    if values["name"] is None and choices["algo"] != NO_ALGO and choices["env"] != NO_ENV:
        env = choices["env"]
        if is_path(module_of(env) or ""):
            env = env.rpartition(":")[2]
        values["name"] = f"{choices['algo']}-{env}".replace("/", "_").replace(":", "_")
    return values


def _container(config: DictConfig, resolve: bool) -> dict[str, Any]:
    plain = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(plain, dict)
    return plain  # type: ignore[return-value]


def _is_drawn(override: Override) -> bool:
    return bool(override.is_sweep_override() and not override.is_discrete_sweep())


def _elements(override: Override) -> tuple[Any, ...]:
    if not override.is_sweep_override():
        return (override.value(),)
    if _is_drawn(override):
        return ()
    return tuple(Override._convert_value(element) for element in override.sweep_iterator())


def _one_line(error: BaseException) -> str:
    """Returns the first line of Hydra's message, which omits its search path, advice and links."""
    text = f"{error}".strip() or f"{error.__cause__}".strip() or type(error).__name__
    return text.splitlines()[0]
