"""Implements `rlrun list`, which prints the names of every group, and `rlrun show`, which explains every key.

Neither imports torch, except for `rlrun list callback`, `rlrun list algo env=...`, `rlrun show optimal=true`, and
plug-ins that import it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from rlrun import dotted
from rlrun.cli import learning_results
from rlrun.cli.columns import print_columns
from rlrun.cli.forms import check_form
from rlrun.config import sources
from rlrun.config.contents import Contents
from rlrun.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rlrun.config.compose import Composer, Word

LIST_HELP = """\
usage: rlrun list [group] [plugins=[package]] [--config-dir DIR]
       rlrun list algo env=<name> [key=value ...]

Prints the names in a group (algo, network, env, trainer, preset, ...), or all groups with their number of names.
`rlrun list algo` and `rlrun list preset` also print what was learned: the interquartile mean of the last evaluations
over seeds. `rlrun list preset` also prints the keys that each preset sets. `rlrun list wrapper` prints the wrappers of
environments with their settings, and `rlrun list callback` the callbacks of runs. With plugins=[...], the parts of
these plug-ins are included, and with --config-dir the YAML files in this folder.

`rlrun list algo env=<name>` prints the algorithms that support the spaces of an environment, with the settings that
follow; it makes the environment and the agents."""

# groups without YAML files
WITHOUT_FILES = {
    "transform": "transforms of rewards",
    "wrapper": "wrappers of environments",
    "callback": "callbacks of runs",
}

OPTIONS = (sources.CONFIG_DIR,)
OPTIMAL = "optimal=true"
WEIGHTS = ("weights=true", "weights=json")

SHOW_HELP = """\
usage: rlrun show [algo=<name>] [env=<name>] [key=value ...]

Prints every key of the config that these settings compose: its value, the source of the value, and its meaning.

  rlrun show algo=sac
  rlrun show algo=sac env=HalfCheetah trainer=quick
  rlrun show env=FrozenLake optimal=true    compute the optimal return by value iteration
  rlrun show algo=sac env=Pendulum weights=true   which optimiser trains which weight; weights=json for programs
  rlrun show space=sac                      the hyperparameters that are worth tuning, with ranges
  rlrun show submit=slurm                   where runs are started, with its settings

  --config-dir DIR     search this folder for YAML files too"""


def list(words: Sequence[str]) -> int:
    """Runs `rlrun list`. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(LIST_HELP)
        return 0
    contents = Contents(sources.folders_of(words))
    config_dirs, words = sources.config_dirs(words)
    plugins = sources.named_plugins(words)
    groups = sources.groups(contents.folders)
    known = [*groups, *WITHOUT_FILES]
    names = []
    faults = []
    for word in words:
        if "=" in word:
            continue
        name = word if word in groups else word.removesuffix("s")
        names.append(name)
        if name not in known:
            faults.append(f"no group {name!r}{nearest(name, known)} (there are: {', '.join(known)})")
    if faults:
        raise ConfigError(*faults)
    if not names:
        rows = [(name, str(len(found)), ", ".join([*found][:8])) for name, found in groups.items()]
        for name, meaning in WITHOUT_FILES.items():
            rows.append((name, "", f"{meaning}; rlrun list {name} shows their settings"))
        print_columns(rows)
    for name in names:
        if name in WITHOUT_FILES:
            print_columns(_parts(name, plugins))
            continue
        if name == "algo":
            files = groups[name]
            if any(word.startswith("env=") for word in words):
                from rlrun.cli.fitting import fitting

                settings = [word for word in words if "=" in word]
                files = {algo: files[algo] for algo in fitting(files, [*settings, *config_dirs])}
            print_columns([*_algorithms(files, contents)])
        elif name == "preset":
            print_columns([*_presets(groups[name], contents)])
        else:
            print_columns([(option, _describe(name, file)) for option, file in groups[name].items()])
        if name == "env":
            print_columns([(id,) for id in _environments_of(plugins)])
            print("\nand every id in Gymnasium's registry: env=Walker2d-v5, env=ALE/Pong-v5, env=my_package:My-v0")
    return 0


def _algorithms(files: dict[str, Path], contents: Contents) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of all algorithms by family: name, returns that it reached, and description."""
    families = {name: family(name, contents) for name in files}
    yield "algorithm", "learned here", "meaning"
    for title in sorted({*families.values()}):
        yield "", "", ""
        yield f"{title}:", "", ""
        for name, file in files.items():
            if families[name] == title:
                yield name, learning_results.of_algorithm(name), _describe("algo", file)


def _presets(files: dict[str, Path], contents: Contents) -> Iterator[tuple[str, str, str, str]]:
    """Yields the rows of all presets: name, return that it reached, description, and the keys that it sets."""
    yield "preset", "learned here", "meaning", "what it sets"
    for name, file in files.items():
        tuned: dict[str, None] = {}
        for base in contents.based(f"preset/{name}"):
            tuned |= dict.fromkeys(key for key, _ in dotted.leaves(base.values) if not key.startswith("trainer."))
        keys = ", ".join(tuned) or "only the length of the run"
        yield name, learning_results.of_preset(name), _describe("preset", file), f"Sets {keys}."


def family(algo: str, contents: Contents) -> str:
    """Returns the family of an algorithm: the folder of its class in rlrun/agents. Imports no agent."""
    from rlrun.settings import registry

    module = registry.modules()["algo"].get(contents.registered_name(algo))
    if module is None:
        return "plug-ins"
    return module.split(".")[2]


def _parts(group: str, plugins: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yields for each part of a group its name, its settings with types, and the first sentence of its docstring."""
    from rlrun.settings import registry

    registry.load(plugins)
    for name, part in registry.registered(group).items():
        settings = get_type_hints(getattr(part, "Config", None) or object)
        keys = ", ".join(f"{key}: {_type(hint)}" for key, hint in settings.items())
        yield name, keys or "-", _first_sentence(part.__doc__ or "")


def _first_sentence(docstring: str) -> str:
    """Returns the first sentence of a docstring, in one line."""
    paragraph = " ".join(docstring.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0]


def _type(hint: Any) -> str:
    """Returns a type as text, like `list[int | str]`."""
    inside = [*map(_type, get_args(hint))]
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(inside)
    if hint is NoneType:
        return "null"
    name: str = getattr(hint, "__name__", str(hint))
    if inside:
        name += f"[{', '.join(inside)}]"
    return name


def _environments_of(plugins: Sequence[str]) -> Iterator[str]:
    """Yields the ids that plug-ins register with Gymnasium."""
    if plugins:
        from rlrun.config.environments import registered_by

        yield from registered_by(plugins)


def show(words: Sequence[str]) -> int:
    """Runs `rlrun show`. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(SHOW_HELP)
        return 0
    config_dirs, words = sources.config_dirs(words)
    check_form("show", words)
    if any(word.startswith("space=") for word in words):
        return _show_space([*words, *config_dirs])
    if any(word.startswith("submit") for word in words):
        words = _show_submission(words)
        if not words:
            return 0
    for word in WEIGHTS:
        if word in words:
            from rlrun.cli.weights import print_weights

            others = [other for other in words if other != word]
            return print_weights([*others, *config_dirs], as_json=word == WEIGHTS[1])
    found = explained([word for word in [*words, *config_dirs] if word != OPTIMAL])
    if OPTIMAL in words:
        return _show_optimal(found.values)
    for name, headline in found.headlines.items():
        print(f"{name}: {headline}")
    print_columns([("key", "value", "from", "meaning"), *found.rows])
    return 0


class Explained(NamedTuple):
    """A composed config, and what `rlrun show` prints about it."""

    values: dict[str, Any]
    headlines: dict[str, str]  # of the named algorithm and environment
    rows: Sequence[tuple[str, str, str, str]]  # key, value, source of the value, meaning


def explained(words: Sequence[str]) -> Explained:
    """Returns the config that the words of `rlrun show` compose. Raises ConfigError."""
    from rlrun.config import grids
    from rlrun.config.compose import Composer
    from rlrun.config.jobs import composed, word_faults

    words = sources.by_name(words)
    composer = Composer.of(words)
    _, words = sources.config_dirs(words)
    read = _read(composer, words)
    composition, choices, unknown, faults = composed(composer, read, required=())
    named: dict[str, str] = {}
    settings = []
    for word in read:
        if fault := grids.fault_of_single(word.text, words, composer):
            faults.append(fault)
        elif word.is_group:
            named[word.key] = str(word.values[0])
        elif word.section not in unknown:
            settings.append(word)
            faults += word_faults(word, composition.tree)
    if faults:
        raise ConfigError(*faults)
    values = composition.values(settings)
    headlines = {}
    for group in ("algo", "env"):
        file = sources.options(group, composer.folders).get(named.get(group, ""))
        if file is None:
            continue
        headline = _describe(group, file)
        if headline:
            headlines[named[group]] = headline
    parts = {group: ", ".join(names) for group, names in sources.groups(composer.folders).items() if group != "algo"}
    return Explained(values, headlines, [*_rows(values, _origins(composer, choices, read), parts)])


def _read(composer: "Composer", words: Sequence[str]) -> Sequence["Word"]:
    """Parses words. Raises ConfigError if one has several values or none."""
    read = [composer.read(word) for word in words]
    several = [word.text for word in read if len(word.values) != 1]
    if several:
        raise ConfigError(*[f"{text}: must have one value, because rlrun show prints one config" for text in several])
    return read


def _show_space(words: Sequence[str]) -> int:
    """Prints the searched keys of a space: ranges, conditions, the value without a search, and the meaning."""
    from rlrun.config.compose import Composer
    from rlrun.config.jobs import composed
    from rlrun.sweep import space

    name = [word.partition("=")[2] for word in words if word.startswith("space=")][-1]
    folders = sources.folders_of(words)
    _, words = sources.config_dirs(words)
    others = [word for word in words if not word.startswith("space=")]
    found = space.named(name, folders)
    if not any(word.startswith("algo=") for word in others):
        others.append(f"algo={name}")
    composer = Composer(folders)
    read = _read(composer, others)
    composition, choices, _, faults = composed(composer, read, required=())
    faults += space.faults(found, composition.tree)
    if faults:
        raise ConfigError(*faults)
    origins = _origins(composer, choices, read)
    notes = sources.notes(sources.options(space.GROUP, folders)[name]).meanings
    print(f"{name}: {_describe(space.GROUP, sources.options(space.GROUP, folders)[name])}")
    rows = [("key", "range", "untuned", "meaning")]
    for dimension in found.dimensions:
        value = dotted.show(dotted.lookup(dimension.key, composition.tree))
        meaning = notes.get(dimension.key) or origins.get(dimension.key, ("", ""))[1]
        rows.append((dimension.key, dimension.text, value, meaning))
    print_columns(rows)
    return 0


def _show_submission(words: Sequence[str]) -> Sequence[str]:
    """Prints the settings of `submit=<name>`, if the words have one. Returns the other words."""
    from rlrun.cluster.submission import GROUP, chosen

    submission, others = chosen(words, {})
    if submission is None:
        return others
    file = sources.options(GROUP, [sources.CONF])[submission.name]
    typed = [word.partition("=")[0] for word in submission.words]
    rows = [("key", "value", "from", "meaning")]
    for name, meaning in sources.notes(file).meanings.items():
        key = f"{GROUP}.{name}"
        origin = sources.label(file)
        if any(word == key or word.startswith(f"{key}.") for word in typed):
            origin = "command line"
        rows.append((key, dotted.show(submission.values[name]), origin, meaning))
    print(f"{submission.name}: {_describe(GROUP, file)}")
    print_columns(rows)
    return others


def _show_optimal(values: dict[str, Any]) -> int:
    from rlrun.envs.config import EnvConfig
    from rlrun.envs.making.dynamics import optimal_return
    from rlrun.settings import parse, registry

    registry.load(values["plugins"])
    best, horizon = optimal_return(parse(EnvConfig, values["env"], "env"))
    line = f"optimal return: {best:.6g}"
    if horizon:
        line += f" (within {horizon} steps)"
    print(line)
    return 0


def _rows(
    values: dict[str, Any], origins: dict[str, tuple[str, str]], parts: dict[str, str]
) -> Iterator[tuple[str, str, str, str]]:
    """Yields a row for every key. parts: the names that may be chosen in each group, as text."""
    for key, value in dotted.leaves(values):
        origin, meaning = origins.get(key, ("", ""))
        section = key.removesuffix(".name")
        if not meaning and section != key and section in parts:
            meaning = f"a part, one of: {parts[section]}"
        if value is not None and key in ("name", "preset") and origin == sources.label(sources.CONF / "train.yaml"):
            origin = "algo and env"  # composing has derived the value from these choices
        yield key, dotted.show(value), origin, meaning


def _origins(composer: "Composer", choices: Sequence[str], words: Sequence["Word"]) -> dict[str, tuple[str, str]]:
    """Returns for each key the source of its value, and its comment. Later files override earlier ones; a key without a
    comment keeps the comment of an earlier file."""
    places: dict[str, str] = {}
    meanings: dict[str, str] = {}
    for file in composer.merges(choices):
        place, keys = "Gymnasium", {"id": ""}
        if file.file is not None:
            place, keys = sources.label(file.file), sources.notes(file.file).meanings
        for name, meaning in keys.items():
            key = f"{file.package}.{name}".lstrip(".")
            places[key] = place
            meanings[key] = meaning or meanings.get(key, "")
    for word in words:
        if word.is_group and word.key != "preset":
            continue
        places[word.key] = "command line"
        for key in places:
            if key.startswith(f"{word.key}."):
                places[key] = "command line"
    return {key: (place, meanings.get(key, "")) for key, place in places.items()}


def _describe(group: str, file: Path) -> str:
    """Returns the first comment of a YAML file, or for an environment without one its Gymnasium id."""
    headline = sources.notes(file).headline
    if not headline and group == "env":
        return sources.env_id(file)
    return headline
