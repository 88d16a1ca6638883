"""All uses of Hydra: its search path, override grammar and composition. No other module imports Hydra."""

import contextlib
import copy
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra._internal import defaults_list as lists
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.defaults_list import DefaultsList, Overrides, create_defaults_list
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ConfigDefault, GroupDefault, InputDefault, ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlrun import dotted
from rlrun.config import check, effects, loggers, sources
from rlrun.config.contents import NO_ALGO, NO_ENV, Content, Contents, Default
from rlrun.errors import ConfigError
from rlrun.imports import is_path, module_of

PRIMARY = "pkg://rlrun.conf"
QUIET = ("hydra/job_logging=none", "hydra/hydra_logging=none")  # no logging by Hydra, whose output would be mixed in
NOT_OVERRIDABLE = re.compile(r"In '(?P<file>[^']+)': Could not override '(?P<part>[^']+)'")  # in a message of Hydra
NOT_FOUND = re.compile(r"Could not find '(?P<group>[^']+)/(?P<name>[^'/]+)'")  # in a message of Hydra
PLAIN = re.compile(r"[A-Za-z_/][\w./:-]*", re.ASCII)  # text that needs no quotes, unless it is one of KEYWORDS
KEYWORDS = ("true", "false", "null", "inf", "nan")
NO_PRESET = "none"
NO_VALUES = OmegaConf.create()  # Hydra only orders files; `Files.merged` merges their values


class ConfFiles(ConfigSource):
    """Provides files to Hydra's option `--info`. `path` lists `conf` folders, separated as in $PATH."""

    def __init__(self, provider: str, path: str):
        super().__init__(provider, path)
        self.contents = Contents(list(map(Path, self.path.split(os.pathsep))))

    @staticmethod
    def scheme() -> str:
        return "rlrun"

    def load_config(self, config_path: str) -> ConfigResult:
        found = self.contents.of(config_path.removesuffix(".yaml"))
        assert found is not None
        values = OmegaConf.create({"defaults": found.defaults} | found.values)
        return ConfigResult(self.provider, self.full_path(), values, {"package": found.package})

    def is_config(self, config_path: str) -> bool:
        return self.contents.of(config_path.removesuffix(".yaml")) is not None

    def is_group(self, config_path: str) -> bool:
        return _is_group(config_path, self.contents.folders)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return []

    def available(self) -> bool:
        return True


class SearchPath(SearchPathPlugin):
    """Adds the `conf` folders of rlrun, of plug-ins and of `--config-dir` to Hydra's search path.

    Hydra creates the instances without arguments, so the folders are a class attribute.
    """

    folders: Sequence[Path] = (sources.CONF,)

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("rlrun", "rlrun://" + os.pathsep.join(map(str, self.folders)))


@dataclass(frozen=True)
class Word:
    """One parsed command-line override. `values` has several elements in a grid."""

    text: str
    key: str
    raw: str  # text after the `=`
    values: tuple[Any, ...]
    is_group: bool
    is_hydra: bool
    is_grid: bool
    is_deletion: bool

    @property
    def section(self) -> str:
        """The first part of the dotted key."""
        return self.key.partition(".")[0]

    @property
    def depth(self) -> int:
        """The number of sections in which the key lies: 2 for `algo.particle.head`."""
        return self.key.count(".")

    @property
    def is_part(self) -> bool:
        """Whether the word chooses a part inside another choice, as `algo.buffer=prioritized` does."""
        return self.is_group and "." in self.key

    @property
    def for_hydra(self) -> str:
        """The word in Hydra's form: a setting becomes `++key=value`, which may also add a key."""
        if self.is_part:
            return choice(self.key, self.raw)
        if self.is_hydra or self.is_deletion:
            return self.text
        if self.is_group:
            return f"{self.key}={self.raw}"
        return f"++{self.key}={self.raw}"


def choice(group: str, name: str) -> str:
    """Returns a group choice in Hydra's form: the group of a part is a folder, so dots become slashes."""
    return f"{group.replace('.', '/')}={name}"


def literal(value: Any) -> str:
    """Returns a plain value as text that Hydra's grammar reads as the same value.

    Text is quoted unless it is a plain word, so that no character in it has a special meaning.
    """
    if isinstance(value, list):
        return "[" + ",".join(map(literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{literal(item)}" for key, item in value.items()) + "}"
    if not isinstance(value, str) or (PLAIN.fullmatch(value) and value.lower() not in KEYWORDS):
        return dotted.show(value)
    escaped = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)  # OmegaConf reads \${ as ${, which refers to nothing
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", escaped)  # backslashes escape nothing, unless a quote follows them
    escaped = re.sub(r"(\\+)\Z", r"\1\1", escaped)
    return f"'{escaped}'"


@dataclass(frozen=True)
class Composition:
    """A config composed from group choices only, before single settings are applied."""

    tree: dict[str, Any]
    choices: dict[str, Any]
    contents: Contents
    files: Sequence[ResultDefault]  # the merged files; later ones override earlier ones

    def values(self, words: Iterable[Word] = ()) -> dict[str, Any]:
        """Returns the config as plain values, with the words applied and interpolations resolved."""
        values = copy.deepcopy(self.tree)
        for word in words:
            section, _, name = word.key.rpartition(".")
            if word.is_deletion:
                del dotted.lookup(section, values)[name]
            else:
                _set(values, word.key, check.fitted(word.values[0], dotted.lookup(word.key, self.tree)))
        return _settle(values, self.choices, self.contents)


class Files(IConfigRepository):
    """Gives Hydra the defaults list of each file in the `conf` folders, and merges the files that Hydra chooses."""

    def __init__(self, contents: Contents):
        self.contents = contents
        self._known: dict[str, ConfigResult] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self._known:
            found = self.contents.of(config_path)
            if found is None:
                return None
            defaults = [_for_hydra(entry) for entry in found.entries()]
            self._known[config_path] = ConfigResult("", "", NO_VALUES, {"package": found.package}, defaults)
        return self._known[config_path]

    def config_exists(self, config_path: str) -> bool:
        return self.contents.of(config_path) is not None

    def group_exists(self, config_path: str) -> bool:
        return _is_group(config_path, self.contents.folders)

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        return [*sources.options(group_name, self.contents.folders)]

    def get_sources(self) -> list[ConfigSource]:
        return []

    def get_schema_source(self) -> ConfigSource:
        raise NotImplementedError

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        raise NotImplementedError

    def merged(self, parts: Iterable[ResultDefault]) -> dict[str, Any]:
        """Returns the config of some files of a composition, of which later ones override earlier ones."""
        tree: dict[str, Any] = {}
        for part in parts:
            found = self.contents.of(f"{part.config_path}")
            assert found is not None  # Hydra has listed it
            values = found.values
            for name in reversed((part.package or "").split(".")):
                if name:
                    values = {name: values}
            _merge(tree, values, tree)
        return tree


def _for_hydra(entry: Default) -> InputDefault:
    if entry.name == "":
        return ConfigDefault(path=entry.path, package=entry.package)
    return GroupDefault(
        group=entry.path, value=entry.name, package=entry.package, optional=entry.optional, override=entry.override
    )


def _is_group(path: str, folders: Sequence[Path]) -> bool:
    """Returns whether a path is that of a folder in `conf` folders."""
    return any((folder / path).is_dir() for folder in folders)


_map_of_choices = lists._create_interpolation_map


def _map_if_needed(overrides: Overrides, defaults_list: list[InputDefault], self_added: bool) -> DictConfig:
    """Returns the choices that entries like `preset: ${algo}-${env}` refer to.

    Hydra maps them for every file, which takes most of the time of a composition; almost no file has such entries.
    """
    if any(entry.is_interpolation() for entry in defaults_list):
        return _map_of_choices(overrides, defaults_list, self_added)
    return NO_VALUES


lists._create_interpolation_map = _map_if_needed


class Composer:
    """Parses words and composes configs with Hydra, over the given conf folders."""

    def __init__(self, folders: Sequence[Path]):
        self.folders = folders
        self.contents = Contents(folders)
        hydra.version.setbase("1.3")
        self._files = Files(self.contents)
        self._parser = OverridesParser.create(config_loader=self._files)  # type: ignore[arg-type]
        self._words: dict[str, Word] = {}
        self._known: dict[tuple[str, ...], Composition] = {}

    @classmethod
    def of(cls, words: Sequence[str]) -> "Composer":
        """Returns a composer over the conf folders of rlrun, and of the plug-ins and `--config-dir` among the words."""
        return cls(sources.folders_of(words))

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
        if override.package is not None:
            raise ConfigError(f"{text}: packages (@) are not used here; a part is chosen by its key: algo.buffer=NAME")
        group = override.key_or_group
        names_a_group = self._files.group_exists(group)
        # `algo.buffer=replay` chooses a part, `algo.buffer={...}` sets its section
        names_a_part = self._files.group_exists(group.replace(".", "/"))
        chooses_a_part = names_a_part and all(isinstance(value, str) for value in elements)
        return Word(
            text=text,
            key=group,
            raw=text.partition("=")[2],
            values=elements,
            is_group=names_a_group or chooses_a_part,
            is_hydra=override.is_hydra_override(),
            is_grid=override.is_sweep_override(),
            is_deletion=override.is_delete(),
        )

    def expand(self, words: Sequence[str]) -> list[list[str]]:
        """Returns the words of every job of a grid, in Hydra's order; without a grid, one job with all words."""
        if not any(self.read(word).is_grid for word in words):
            return [list(words)]
        overrides = self._parser.parse_overrides(list(words))
        return [list(job) for job in BasicSweeper.split_arguments(overrides, None)[0]]

    def compose(self, choices: Sequence[str]) -> Composition:
        """Composes `train.yaml` with group choices only.

        Raises ConfigError if Hydra cannot compose the files, or if a user's file has no effect.
        """
        key = tuple(choices)
        if key not in self._known:
            found = self._composed(choices)
            faults = [*self._without_effect(found)]
            if faults:
                raise ConfigError(*faults)
            self._known[key] = found
        return self._known[key]

    def _composed(self, choices: Sequence[str]) -> Composition:
        try:
            found = self._defaults(choices)
        except HydraException as error:
            fault = self._lacking_part(choices, error)
            if fault is None:
                fault = self._unknown_name(error)
            if fault is None:
                fault = _one_line(error)
            raise ConfigError(fault) from None
        chosen = found.overrides.known_choices
        tree = self._files.merged(found.defaults)
        _empty(tree, chosen, self.contents)
        return self._composition(tree, chosen, found.defaults)

    def _composition(self, tree: dict[str, Any], chosen: dict[str, Any], files: Sequence[ResultDefault]) -> Composition:
        _forget(tree, chosen, self.contents)
        return Composition(tree, chosen, self.contents, files)

    def _without_effect(self, found: Composition) -> Iterator[str]:
        """Yields the faults of the user's files in a composition: names, keys and values that have no effect."""
        for group, name in found.choices.items():
            yield from effects.name_faults(group, name, found.tree, self.contents)
        yield from effects.unused_yaml_files(self.folders)
        yield from effects.unused_environment_yaml(found.tree)
        preset = self.contents.preset_file(found.choices.get("preset"))
        if self.contents.of_user(f"preset/{preset}"):
            yield from self._file_faults(f"preset/{preset}", found, effects.preset_faults)
        algo = found.choices["algo"]
        if self.contents.of_user(f"algo/{algo}"):  # checked alone, because other choices may replace its parts
            alone = self._composed([choice("algo", algo), choice("preset", NO_PRESET)])
            yield from effects.class_faults(algo, alone.tree, self.contents)
            yield from self._file_faults(f"algo/{algo}", alone, effects.algorithm_faults)

    def _file_faults(self, chosen: str, found: Composition, faults: effects.Check) -> Iterator[str]:
        """Yields the faults of a user's preset or algorithm, and of the user's files on which it is based.

        Each file is compared with the composition of all others.
        """
        group = chosen.partition("/")[0]
        parts = found.files
        for index, part in enumerate(parts):
            path = f"{part.config_path}"
            file = self.contents.of_user(path)
            if file is None or not path.startswith(f"{group}/") or not sources.is_whole(path):
                continue
            others = [other for other in parts if other is not part]
            tree = self._composition(self._files.merged(others), found.choices, others).tree
            values = self._files.merged([part])
            found_faults = [*check.refused(values)]
            if not found_faults:
                found_faults = [*faults(values, tree)]
            if path == chosen:
                later = []
                for other in parts[index + 1 :]:
                    if f"{other.config_path}".startswith(f"{group}/"):
                        later.append(other)
                found_faults += effects.replaced(values, self._files.merged(later))
            yield from (f"{file.place}: {fault}" for fault in found_faults)

    def merges(self, choices: Sequence[str]) -> Iterator[Content]:
        """Yields the files that `compose(choices)` merges. Later files override earlier ones.

        In what it yields, `package` is the full key of the section that holds the values, "" for the whole config.
        """
        for part in self.compose(choices).files:
            found = self.contents.of(f"{part.config_path}")
            assert found is not None
            yield found._replace(package=part.package or "")

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

        An example is the preset of a sweep with a network of the user's, if the user does not name its file again.
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


def show_info(composer: Composer, words: Sequence[str], what: str) -> None:
    """Prints what Hydra's own option `--info` prints about a composition."""
    SearchPath.folders = composer.folders
    for plugin in (ConfFiles, SearchPath):
        Plugins.instance().register(plugin)
    argv = sys.argv
    full_error = os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["rlrun", f"--info={what}", *QUIET, *(composer.read(word).for_hydra for word in words)]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise an error instead of printing it and exiting
    try:
        hydra.main(version_base="1.3", config_path=PRIMARY, config_name="train")(_no_job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from None
    finally:
        sys.argv = argv
        os.environ.pop("HYDRA_FULL_ERROR")
        if full_error is not None:
            os.environ["HYDRA_FULL_ERROR"] = full_error


def _no_job(config: DictConfig) -> None:
    """The function that Hydra would call without `--info`."""


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
    if not isinstance(value, str):
        return value
    reference = check.REFERENCE.fullmatch(value)
    if reference is None:
        return value
    return copy.deepcopy(dotted.lookup(reference[1], root))


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    """Sets a value of a config. A section is merged with the present one; {} empties it.

    Raises ConfigError if the key lies in a list.
    """
    *sections, name = key.split(".")
    home = tree
    for index, section in enumerate(sections):
        inner = _referred(home.get(section), tree)
        if isinstance(inner, list):
            whole = ".".join(sections[: index + 1])
            raise ConfigError(f"{key}: {whole} is a list; set the whole list, as in {whole}={dotted.show(inner)}")
        if not isinstance(inner, dict):
            inner = {}
        home[section] = inner
        home = inner
    if value == {}:
        home[name] = {}
    else:
        _merge(home, {name: value}, tree)


def _empty(tree: dict[str, Any], choices: dict[str, Any], contents: Contents) -> None:
    """Empties the sections that the user's preset sets to {}, because a merge with {} changes nothing."""
    preset = contents.of_user(f"preset/{contents.preset_file(choices.get('preset'))}")
    if preset is None:
        return
    for key, value in dotted.leaves(preset.values):
        if value == {}:
            _set(tree, key, {})


def _forget(tree: dict[str, Any], choices: dict[str, Any], contents: Contents) -> None:
    """Removes keys that the chosen parts do not have.

    Such keys remain if an algorithm or preset sets keys of its default part, but the user chooses another part.
    """
    for group, name in choices.items():
        section = dotted.lookup(group.replace("/", "."), tree)
        if "/" in group and isinstance(section, dict):
            for key in set(section) - contents.own_keys(f"{group}/{name}"):
                del section[key]


def _settle(values: dict[str, Any], choices: dict[str, Any], contents: Contents) -> dict[str, Any]:
    """Returns plain values with interpolations resolved, and with `name` and `preset` set from the choices.

    Raises ConfigError for values that `check.refused` does not allow, or if an interpolation cannot be resolved.
    """
    unsafe = list(check.refused(values))
    if unsafe:
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
        values["preset"] = contents.preset_file(chosen)
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


def _elements(override: Override) -> tuple[Any, ...]:
    """Returns the values of an override. Raises ConfigError for a range, from which a sweep would draw values."""
    if not override.is_sweep_override():
        return (override.value(),)
    if not override.is_discrete_sweep():
        raise ConfigError(f"{override.input_line}: a range has no values to train with; `rlrun sweep` searches ranges")
    return tuple(Override._convert_value(element) for element in override.sweep_iterator())


def _one_line(error: BaseException) -> str:
    """Returns the first line of Hydra's message, without the search path, advice and links that follow it."""
    text = f"{error}".strip() or f"{error.__cause__}".strip() or type(error).__name__
    return text.splitlines()[0]
