"""What the files of `conf` folders hold, and on which other files each is based. Does not import Hydra.

A name may stand for a file that nobody wrote: any Gymnasium id, a preset named with its environment's full id instead
of the alias, a part in a Python file of a plug-in, and `_none` as the algorithm.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import dotted
from rlrun.config import check, declared, defined, loggers, preset_files, sources
from rlrun.config.declared import Declared
from rlrun.config.defined import Defined
from rlrun.errors import ConfigError, nearest

NO_ALGO, NO_ENV = "_none", "_base"  # the defaults in train.yaml, which every run must replace
WHOLE = "_global_"  # package of a file that sets keys of the whole config
ENTRY = re.compile(r"(?P<override>override )?(?P<optional>optional )?(?P<path>[^ @]+)(@(?P<package>[^ @]*))?")


class Default(NamedTuple):
    """An entry of a list of defaults, such as `override /algo/buffer@algo.buffer: replay`, or `_self_`."""

    path: str  # /algo/buffer; without a name, the path of a file
    package: str | None  # algo.buffer
    name: Any = ""  # replay; a list of names adds several files, and null none
    override: bool = False
    optional: bool = False


class Content(NamedTuple):
    """What a file of a `conf` folder holds, or would hold if it was written."""

    file: Path | None
    package: str | None  # the section that the file sets; None: the section of its group
    defaults: list[object]  # the defaults list of the file, as in YAML
    values: dict[str, Any]

    @property
    def place(self) -> str:
        """The path of the file, as messages show it, or "a preset" without a file."""
        if self.file is None:
            return "a preset"
        return sources.label(self.file)

    def entries(self) -> Iterator[Default]:
        """Yields the defaults. Raises ConfigError for an entry in another form."""
        for entry in self.defaults:
            text = entry
            name = ""
            if isinstance(entry, dict) and len(entry) == 1:
                ((text, name),) = entry.items()
            found = None
            if isinstance(text, str):
                found = ENTRY.fullmatch(text)
            names = [name or ""]
            if isinstance(name, list):
                names = name
            if found is None or not all(isinstance(each, str) for each in names):
                raise ConfigError(f"{self.place}: defaults: {dotted.show(entry)}: must be a name, or a group: name")
            yield Default(
                path=found["path"],
                package=found["package"],
                name=name,
                override=found["override"] is not None,
                optional=found["optional"] is not None,
            )


def of_values(file: Path | None, package: str | None, values: dict[str, Any]) -> Content:
    """Returns the content of a file from what its YAML holds."""
    rest = {key: value for key, value in values.items() if key != "defaults"}
    return Content(file, package, values.get("defaults", []), rest)


class Contents:
    """The content of each file, by its path below `conf` without its ending, such as `algo/buffer/replay`.

    Reads each file once; rlrun's own, which do not change while it runs, once in a process.
    """

    def __init__(self, folders: Sequence[Path]):
        self.folders = folders
        self._known: dict[str, Content | None] = {}

    def of(self, path: str) -> Content | None:
        """Returns the content of a path, or None if there is none.

        Raises ConfigError for a faulty file, and for a second file of the same path, because only one has an effect.
        """
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def of_user(self, path: str) -> Content | None:
        """Returns the content of a user's YAML file, or None if the path is that of another file or of none."""
        found = self.of(path)
        if found is None or found.file is None or found.file.suffix != ".yaml":
            return None
        if found.file.is_relative_to(sources.CONF):
            return None
        return found

    def based(self, path: str, chosen: Mapping[str, str] | None = None, package: str = "") -> Iterator[Content]:
        """Yields a file and all on which it is based, in the order in which they are merged; later ones override.

        In what it yields, `package` is the full key of the section that holds the values, "" for the whole config.
        chosen: names by group, such as {"algo": "sac", "algo.entropy": "fixed"}, in place of those in the files.
        package: the section to which the values of `path` belong.
        """
        found = self.of(path)
        if found is None:
            return
        if found.package == WHOLE:
            package = ""
        entries = [*found.entries()]
        if "_self_" not in found.defaults:
            entries.append(Default("_self_", None))
        for entry in entries:
            if entry.path == "_self_":
                yield found._replace(package=package)
            for base, section in _included(entry, path, package, chosen or {}):
                yield from self.based(base, chosen, section)

    def own_keys(self, path: str) -> set[str]:
        """Returns the keys that a part's file sets.

        They include those of the files on which it is based, and the sections of its own parts.
        """
        keys: set[str] = set()
        for file in self.based(path):
            if file.package:
                keys.add(file.package.partition(".")[0])
            else:
                keys |= set(file.values)
        return keys

    def registered_name(self, algo: str) -> str:
        """Returns the registered name of the class that an algorithm's file configures, or "" if it names none."""
        name = ""
        for file in self.based(f"algo/{algo}"):
            named = dotted.lookup("algo.name", file.values)
            if not file.package and named is not dotted.ABSENT:
                name = str(named)
        return name

    def preset_file(self, name: str | None) -> str | None:
        """Returns the preset of this name, or None if there is no such preset.

        A name that ends in an environment's full id, such as sac-Pendulum-v1, gives the preset named with the alias,
        sac-Pendulum. One that ends in an environment whose file is based on that of a family, such as env/_atari.yaml,
        gives the preset named with the family: dqn-atari for dqn-Pong. One that ends in an environment of a module,
        such as sac-./grip.py:Grip, gives a preset of the user named sac-Grip. An algorithm of the user that derives
        from another has the presets of the other.
        """
        presets = sources.options("preset", self.folders)
        if not name or name in presets or sources.is_preset_path(name):
            return name or None
        for alias, file in sources.options("env", self.folders).items():
            algo = name.removesuffix(f"-{sources.env_id(file)}")
            if algo != name and f"{algo}-{alias}" in presets:
                return f"{algo}-{alias}"
        if family := self._family_preset(name, presets):
            return family
        place, _, env = name.rpartition(":")
        for algo in sources.options("algo", self.folders):
            short = f"{algo}-{env}"
            if place.startswith(f"{algo}-") and self.of_user(f"preset/{short}"):
                return short
        derived = self._derived(name)
        if derived is None:
            return None
        return self.preset_file(derived[1])

    def _family_preset(self, name: str, presets: Iterable[str]) -> str | None:
        """Returns the preset of the environment's family for the name `<algo>-<env>` of a preset, or None."""
        for family in presets:
            algo, _, base = family.rpartition("-")
            env = name.removeprefix(f"{algo}-")
            if env == name or self.of(f"env/_{base}") is None:
                continue
            found = self.of(f"env/{env}")
            if found is not None and f"_{base}" in found.defaults:
                return family
        return None

    def _derived(self, name: str) -> tuple[Content, str] | None:
        """Finds the user's algorithm in the name `<algo>-<env>` of a preset, if it derives from another algorithm.

        Returns (its content, `<other algorithm>-<env>`), or None.
        """
        known = sources.options("algo", self.folders)
        for algo in known:
            if not name.startswith(f"{algo}-"):
                continue
            found = self.of(f"algo/{algo}")
            if found is None or found.file is None or found.file.is_relative_to(sources.CONF):
                continue
            for base in found.defaults:
                if isinstance(base, str) and base in known:
                    return found, base + name.removeprefix(algo)
        return None

    def _read(self, path: str) -> Content | None:
        """Returns the content of a file, or of a name without a file. Files take precedence."""
        candidates = [folder / f"{path}.yaml" for folder in self.folders]
        files = [file for file in candidates if file.is_file()]
        if len({file.resolve() for file in files}) > 1:
            first, second = map(sources.label, files[:2])
            raise ConfigError(f"{second}: has no effect, because {first} has the same name; rename it")
        if files and files[0].is_relative_to(sources.CONF):
            return _shipped(path)
        if files:
            return _user_file(files[0], path)
        group, _, name = path.rpartition("/")
        part = declared.find(group, name, sources.python_files(self.folders)) or defined.find(group, name)
        if part is not None:
            return self._of_part(part, path)
        group, _, name = path.partition("/")
        if group == "env" and name and not name.startswith("_"):
            base = "_base"
            if "ALE/" in name:
                base = "_atari"
            return Content(None, None, [base, "_self_"], {"id": name})
        if group == "preset":
            return self._preset(name)
        if path == f"algo/{NO_ALGO}":
            return Content(None, WHOLE, [], {})
        return None

    def _preset(self, name: str) -> Content | None:
        """Returns the content of a preset that has no file in a `conf` folder.

        If the preset is that of the algorithm from which the user's algorithm derives, the values of the user's
        algorithm override those of the preset.
        """
        if sources.is_preset_path(name):
            return of_values(Path(name), WHOLE, preset_files.read(name, self.folders))
        named = self.preset_file(name)
        if named is None:
            return None
        derived = self._derived(name)
        if derived is None:
            return Content(None, WHOLE, [f"/preset/{named}"], {})
        algorithm, base = derived
        values = copy.deepcopy(algorithm.values)
        if isinstance(values.get("algo"), dict):
            values["algo"].pop("name", None)  # the algorithm's own file sets it
        return algorithm._replace(defaults=[f"/preset/{base}", "_self_"], values=values)

    def _of_part(self, part: Declared | Defined, path: str) -> Content:
        """Returns the content of the YAML file beside the file of a part, or the defaults of its Config."""
        package = None
        if part.group == "algo":
            package = WHOLE
        if part.yaml_file is not None:
            found = _user_file(part.yaml_file, path)._replace(package=package)
            if not found.defaults and part.base is not None:
                found = found._replace(defaults=[part.base, "_self_"])
            if part.name_key and dotted.lookup(part.name_key, found.values) in (dotted.ABSENT, None):
                dotted.put(part.name_key, part.name, found.values)
            return found
        values = {"name": part.name, **part.values()}
        if part.group == "network":
            values |= {"actor": {}, "critic": {}}  # keys that differ in the networks of these roles
        if part.group == loggers.SECTION:
            values = {part.name: part.values()}
        if part.group == "algo":
            return self._algorithm(part, values)
        defaults: list[object] = []
        if part.base is not None:
            defaults = [part.base, "_self_"]
        return Content(part.file, package, defaults, values)

    def _algorithm(self, part: Declared | Defined, values: dict[str, object]) -> Content:
        """Returns what the YAML file of an algorithm would hold, with the parts that its class attributes choose.

        Raises ConfigError for an unknown part, or for keys that the part does not have.
        """
        chosen_parts = part.chosen_parts()
        faults: list[str] = []
        for section, settings in chosen_parts.items():
            name = settings["name"]
            place = f"{part.file.name}: {section}"
            known = sources.options(f"algo.{section}", self.folders)
            faults += _unknown([name], "name", known, place)
            if name in known:
                faults += _unknown(settings, "key", self.own_keys(f"algo/{section}/{name}"), place)
        if faults:
            raise ConfigError(*faults)
        chosen = []
        for section, settings in chosen_parts.items():
            chosen.append({f"{section}@algo.{section}": settings.pop("name")})
        return Content(part.file, WHOLE, [part.base or "_parts", *chosen, "_self_"], {"algo": values | chosen_parts})


@cache
def _shipped(path: str) -> Content:
    file = sources.CONF / f"{path}.yaml"
    return of_values(file, sources.package(file), sources.content(file) or {})


def _user_file(file: Path, path: str) -> Content:
    """Returns the content of a user's YAML file.

    A preset or an algorithm sets keys of the whole config, whatever its first line says. Raises ConfigError if the file
    is no YAML mapping, or holds other values than a config may.
    """
    values = sources.content(file) or {}
    place = sources.label(file)
    if not isinstance(values, dict):
        raise ConfigError(f"{place}: must be a mapping of config keys to values")
    if sources.is_empty(values):
        raise ConfigError(f"{place}: sets nothing")
    if not isinstance(values.get("defaults", []), list):
        raise ConfigError(f"{place}: defaults: must be a list")
    faults = [f"{place}: {fault}" for fault in check.not_plain(values)]
    if faults:
        raise ConfigError(*faults)
    if sources.is_whole(path):
        return of_values(file, WHOLE, values)
    return of_values(file, sources.package(file), values)


def _included(entry: Default, path: str, package: str, chosen: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the path and the section of each file that an entry in the defaults list of `path` adds."""
    home = _below(path.rpartition("/")[0], entry.path)
    if entry.path == "_self_" or entry.override or entry.optional or entry.name is None:
        return
    if entry.name == "":
        section = package
        if entry.package not in (None, "", "_here_"):
            section = _joined(package, entry.package)
        yield home, section
        return
    names = chosen.get(home.replace("/", "."), entry.name)
    if not isinstance(names, list):
        names = [names]
    for name in names:
        yield f"{home}/{name}", _joined(package, entry.package or entry.path)


def _below(folder: str, name: str) -> str:
    if name.startswith("/"):
        return name[1:]
    return f"{folder}/{name}".lstrip("/")


def _joined(package: str, key: str) -> str:
    return f"{package}.{key}".strip(".")


def _unknown(words: Iterable[str], kind: str, known: Iterable[str], place: str) -> Iterator[str]:
    """Yields a fault for each word that is not known."""
    for word in words:
        if word not in known:
            near = nearest(word, known)
            yield f"{place}: {word}: unknown {kind}{near} (there are: {', '.join(sorted(known))})"
